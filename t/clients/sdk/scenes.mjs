// All scenes with the Node SDKs, at once, in one process.
//
// usage: node scenes.mjs '{"npm": directory of node_modules, "url": gateway,
//     "compat": gateway with modelgw_error_compat, "refused": gateway without
//     upstreams, "alice": key for messages, "bob": key for chat}'
//
// The text of each question is the name of its scene, by which the upstream
// selects the answer; it is in the gateway's log as X-Test-Tag.

import { at, chat as chatOf, collect, describe, gather, load, play, scenes }
    from './play.mjs';

const FOREIGN = 'sk-ant-api03-' + 'x'.repeat(40);


// The two APIs behind one interface; translated is chat with the group that
// speaks messages.

const chat = chatOf('fam-b-one', 'fam-a-large', at.bob);
const translated = chatOf('fam-a-large', 'fam-b-one', at.alice);

const messages = {
    model: 'fam-a-large', other: 'fam-b-one', key: at.alice,

    client: (SDK, name, options) => new SDK({
        baseURL: at.url, apiKey: at.alice,
        defaultHeaders: { 'X-Test-Tag': name }, ...options,
    }),
    request: (name, more) => ({
        model: 'fam-a-large', max_tokens: 100,
        messages: [{ role: 'user', content: name }], ...more,
    }),
    ask: (c, ...rest) => c.messages.create(messages.request(...rest)),
    text: (r) => r.content[0].text,
    piece: (item) => item.delta?.text ?? '',
    helper: (c, name) => c.messages.stream(messages.request(name)),
    final: (stream) => stream.finalMessage(),

    tools: [{ name: 'weather',
              input_schema: { type: 'object', properties: {} } }],
    call: (r) => r.content.find((b) => b.type === 'tool_use').input,
    result: (r) => [{ role: 'assistant', content: r.content }, {
        role: 'user', content: [{
            type: 'tool_result', content: '20',
            tool_use_id: r.content.find((b) => b.type === 'tool_use').id,
        }],
    }],
};


// Scenes for both APIs; c makes a client with these options.

const common = {
    async answer(api, c, name) {
        const r = await api.ask(c(), name);
        return { text: api.text(r), model: r.model, id: r._request_id };
    },

    async stream(api, c, name) {
        return collect(await api.ask(c(), name, { stream: true }), api.piece);
    },

    async helper(api, c, name) {
        const r = await api.final(api.helper(c(), name));
        return { text: api.text(r), model: r.model };
    },

    async tools(api, c, name) {
        const client = c();
        const tools = { tools: api.tools };
        const r = await api.ask(client, name, tools);
        const last = await api.ask(client, name, {
            ...tools,
            messages: [...api.request(name).messages, ...api.result(r)],
        });
        return { call: api.call(r), text: api.text(last) };
    },

    async tool_stream(api, c, name) {
        return { call: api.call(await api.final(api.helper(c(), name))) };
    },

    async models(api, c) {
        const client = c();
        const ids = [];
        for await (const m of client.models.list()) {
            ids.push(m.id);
        }
        const one = await client.models.retrieve(ids[0]);
        const error = await client.models.retrieve(api.other).catch(describe);
        return { ids, one: one.id, error };
    },

    // "bearer " and blanks, as people paste keys

    async key_blanks(api, c, name) {
        return { text: api.text(await api.ask(
            c({ apiKey: `  ${api.key} \n` }), name)) };
    },

    async break(api, c, name) {
        const out = [];
        const stream = await api.ask(c(), name, { stream: true });
        for await (const item of stream) {
            if (api.piece(item)) {
                out.push(api.piece(item));
                break;
            }
        }
        return out;
    },

    error_401: (api, c, name) => api.ask(c({ apiKey: 'sk-eu-no' }), name),
    error_model: (api, c, name) => api.ask(c(), name, { model: 'none' }),
    error_403: (api, c, name) => api.ask(c(), name, { model: api.other }),
    error_404: (api, c, name) => c().post('/v1/nothing', { body: {} }),
    error_400: (api, c, name) => api.ask(c(), name),
    error_429: (api, c, name) => api.ask(c({ maxRetries: 0 }), name),
    error_500: (api, c, name) => api.ask(c({ maxRetries: 0 }), name),
    error_529: (api, c, name) => api.ask(c({ maxRetries: 0 }), name),
    error_early: (api, c, name) => api.ask(c({ maxRetries: 0 }), name,
                                           { stream: true }),
    retry_500: (api, c, name) => api.ask(c(), name),
    async retry_429(api, c, name) {
        return { text: api.text(await api.ask(c(), name)) };
    },
    refused: (api, c, name) => api.ask(
        c({ maxRetries: 1, baseURL: api === messages ? at.refused
                                                     : at.refused + '/v1' }),
        name),
};

for (const how of ['cut', 'clean', 'frame']) {
    common['broken_' + how] = common.stream;
    common['helper_' + how] = common.helper;
}

const only_chat = {
    async usage(api, c, name) {
        const asked = { stream: true,
                        stream_options: { include_usage: true } };
        const out = { plain: 0, asked: 0 };
        for await (const k of await api.ask(c(), name, { stream: true })) {
            out.plain += k.choices.length === 0 || !!k.usage;
        }
        for await (const k of await api.ask(c(), name, asked)) {
            out.asked += k.choices.length === 0 && !!k.usage;
        }
        return out;
    },
};

const only_messages = {
    async count_tokens(api, c, name) {
        const { max_tokens, ...request } = api.request(name);
        return c().messages.countTokens(request);
    },
    async beta(api, c, name) {
        const r = await c().beta.messages.create(
            api.request(name, { betas: ['context-1m-2025-08-07'] }));
        return { text: api.text(r), model: r.model };
    },
    async beta_query(api, c, name) {
        const r = await c().messages.create(api.request(name),
                                            { query: { beta: 'true' } });
        return { text: api.text(r), model: r.model };
    },
    async auth_token(api, c, name) {
        return { text: api.text(await api.ask(
            c({ apiKey: null, authToken: at.alice }), name)) };
    },
    async both_keys(api, c, name) {
        return { text: api.text(await api.ask(
            c({ apiKey: null, authToken: at.alice, defaultHeaders: {
                'X-Test-Tag': name, 'x-api-key': FOREIGN,
            } }), name)) };
    },
};

// older major versions, as current programs bundle them

const old = ['answer', 'stream', 'helper', 'tool_stream', 'error_401',
             'error_400', 'retry_500', 'broken_cut'];

function add(prefix, SDK, api, table, more) {
    for (const [key, scene] of Object.entries(table)) {
        const name = `${prefix}.${key}`;
        const c = (options) => api.client(SDK, name, { ...more, ...options });
        scenes[name] = () => scene(api, c, name);
    }
}

function pick(names) {
    return Object.fromEntries(names.map((n) => [n, common[n]]));
}


// AI SDK.

async function ai(prefix, model, provider) {
    const { generateText, streamText, tool, jsonSchema, stepCountIs } =
        await load('ai');
    const make = (name, options) => provider({
        headers: { 'X-Test-Tag': name }, ...options,
    })(model);
    const scene = (key, run) => {
        const name = `${prefix}.${key}`;
        scenes[name] = () => run(name);
    };

    scene('answer', async (name) => {
        const r = await generateText({ model: make(name), prompt: name });
        return { text: r.text, tokens: r.usage.outputTokens };
    });
    scene('stream', async (name) => {
        const r = streamText({ model: make(name), prompt: name });
        let text = '';
        for await (const part of r.textStream) {
            text += part;
        }
        return { text, finish: await r.finishReason };
    });
    scene('tools', async (name) => {
        const calls = [];
        const weather = tool({
            description: 'The weather',
            inputSchema: jsonSchema({ type: 'object', properties: {} }),
            execute: async (input) => { calls.push(input); return '20'; },
        });
        const r = streamText({ model: make(name), prompt: name,
                               tools: { weather },
                               stopWhen: stepCountIs(3) });
        let text = '';
        for await (const part of r.textStream) {
            text += part;
        }
        return { text, calls };
    });
    for (const how of ['cut', 'clean']) {
        scene(`broken_${how}`, async (name) => {
            return gather(streamText({ model: make(name), prompt: name,
                                       onError: () => {} }));
        });
    }
    scene('error_401', (name) => generateText({
        model: make(name, { apiKey: 'sk-eu-no' }), prompt: name }));
    scene('compat', (name) => generateText({
        model: make(name, { apiKey: 'sk-eu-no', baseURL: at.compat + '/v1' }),
        prompt: name }));
}


const OpenAI = (await load('openai')).default;
const Anthropic = (await load('@anthropic-ai/sdk')).default;

add('openai', OpenAI, chat, { ...common, ...only_chat });
add('anthropic', Anthropic, messages, { ...common, ...only_messages });
add('translated', OpenAI, translated, { ...common, ...only_chat });

for (const name of ['openai-5', 'openai-6']) {
    add(name, (await load(name)).default, chat, pick(old),
        { baseURL: at.compat + '/v1' });
}

add('anthropic-0', (await load('anthropic-0')).default, messages, pick(old));

const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { createAnthropic } = await load('@ai-sdk/anthropic');

for (const [prefix, api] of [['ai-chat', chat],
                             ['ai-translated', translated]]) {
    await ai(prefix, api.model, (o) => createOpenAICompatible({
        name: 'gateway', baseURL: at.url + '/v1', apiKey: api.key, ...o }));
}
await ai('ai-messages', messages.model, (o) => createAnthropic({
    baseURL: at.url + '/v1', apiKey: at.alice, ...o }));

await play();
