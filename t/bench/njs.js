// What a gateway in njs does: see cases.py.  The body is replaced by a string
// and not made from the object again, which would cost more; "keys" is an
// object that js_preload_object has read, as each request runs this file anew.

const crypto = require('crypto');

const MODELS = {
    'bench-large': 'large-2026-01-01', 'bench-small': 'small-2026-01-01'
};

function refuse(r, status, code) {
    r.headersOut['Content-Type'] = 'application/json';
    r.return(status, '{"code":"' + code + '","message":"' + code + '"}');
}

function check(r) {
    const header = r.headersIn['Authorization'] || '';

    if (!header.startsWith('Bearer ')) {
        return refuse(r, 401, 'API_KEY_REQUIRED');
    }

    const digest = crypto.createHash('sha256').update(header.slice(7))
                         .digest('hex');

    if (!keys[digest]) {
        return refuse(r, 401, 'INVALID_API_KEY');
    }

    const body = r.requestText || '';
    let document;

    try {
        document = JSON.parse(body);

    } catch (e) {
        return refuse(r, 400, 'INVALID_JSON');
    }

    const model = MODELS[document.model];

    if (!model) {
        return refuse(r, 400, 'INVALID_MODEL');
    }

    r.variables.bench_body = body.replace('"model":"' + document.model + '"',
                                          '"model":"' + model + '"');

    r.internalRedirect('@upstream');
}

export default { check };
