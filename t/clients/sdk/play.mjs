// What programs with scenes share: the packages, the interface to the chat
// API, and the runner.  A scene is an asynchronous function; all scenes of a
// program run at once.  process.argv[2] is {"npm": directory of node_modules,
// …}.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

export const at = JSON.parse(process.argv[2]);
const require = createRequire(at.npm + '/');
export const load = async (name) =>
    import(pathToFileURL(require.resolve(name)).href);

export const scenes = {};

export function describe(e) {
    return {
        class: e.constructor.name, status: e.status ?? e.statusCode,
        message: e.message, code: e.code, body: e.error,
        id: e.requestID, text: e.responseBody,
        retry: e.headers?.get?.('x-should-retry'),
    };
}

// the part of a stream that arrived before it threw

export async function collect(stream, piece) {
    const out = { text: '', items: 0, models: [] };

    try {
        for await (const item of stream) {
            const model = item.model ?? item.message?.model;
            if (model && !out.models.includes(model)) {
                out.models.push(model);
            }
            out.text += piece(item);
            out.items++;
        }
    } catch (e) {
        out.error = describe(e);
    }

    return out;
}

// the same of the AI SDK's stream

export async function gather(stream) {
    const out = { text: '', reasoning: '', errors: [] };

    try {
        for await (const part of stream.fullStream) {
            if (part.type === 'text-delta') {
                out.text += part.text;
            } else if (part.type === 'reasoning-delta') {
                out.reasoning += part.text;
            } else if (part.type === 'error') {
                out.errors.push(describe(part.error));
            }
        }
    } catch (e) {
        out.errors.push(describe(e));
    }

    return out;
}


// The chat API for scenes: a model, one of another group, a key.

export const chat = (model, other, key) => ({
    model, other, key,

    client: (SDK, name, options) => new SDK({
        baseURL: at.url + '/v1', apiKey: key,
        defaultHeaders: { 'X-Test-Tag': name }, ...options,
    }),
    request: (name, more) => ({
        model, messages: [{ role: 'user', content: name }], ...more,
    }),
    ask(c, ...rest) {
        return c.chat.completions.create(this.request(...rest));
    },
    text: (r) => r.choices[0].message.content,
    piece: (item) => item.choices[0].delta.content ?? '',
    helper(c, ...rest) {
        return c.chat.completions.stream(this.request(...rest));
    },
    final: (stream) => stream.finalChatCompletion(),

    tools: [{ type: 'function', function: {
        name: 'weather', parameters: { type: 'object', properties: {} },
    } }],
    call: (r) => JSON.parse(
        r.choices[0].message.tool_calls[0].function.arguments),
    result: (r) => [r.choices[0].message, {
        role: 'tool', content: '20',
        tool_call_id: r.choices[0].message.tool_calls[0].id,
    }],
});


// Runs all scenes, or those whose name contains process.argv[3], and prints
// one object: for each what it returned ("ok") or threw ("error"), and its
// time ("ms").

export async function play() {
    const only = process.argv[3];
    const results = {};

    await Promise.all(Object.entries(scenes).map(async ([name, scene]) => {
        if (only && !name.includes(only)) {
            return;
        }
        const begin = performance.now();
        const r = {};
        try {
            r.ok = (await scene()) ?? null;
        } catch (e) {
            r.error = describe(e.lastError ?? e);
            r.error.outer = e.constructor.name;
        }
        r.ms = Math.round(performance.now() - begin);
        results[name] = r;
    }));

    process.stdout.write(JSON.stringify(results), () => process.exit(0));
}
