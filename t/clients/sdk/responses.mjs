// Scenes with the responses API: the official SDK for Node, three versions of
// the AI SDK, the Agents SDK and LangChain, each with a group that passes the
// API through and with groups that speak messages and chat.
//
// usage: node responses.mjs '{"npm": directory of node_modules, "url": gateway,
//     "keys": {protocol: key}}'
//
// The text of each question names its scene, by which the upstream selects
// the answer.

import { at, describe, gather, load, play, scenes } from './play.mjs';

const z = (await load('zod')).z;
const Report = z.object({ city: z.string(), degrees: z.array(z.number()) });
const City = z.object({ city: z.string() });
const CITY = {
    type: 'object', properties: { city: { type: 'string' } },
    required: ['city'], additionalProperties: false,
};
const include = ['reasoning.encrypted_content'];

function add(client, all) {
    for (const [scene, run] of Object.entries(all)) {
        for (const protocol of Object.keys(at.keys)) {
            const name = [client, scene, protocol].join('.');
            scenes[name] = () => run({
                key: at.keys[protocol], model: `fam-${protocol}-one`,
                prompt: `scene-${name}, please`,
            });
        }
    }
}


// openai: events as they are, and its stream runner.

const OpenAI = (await load('openai')).default;
const { zodTextFormat } = await load('openai/helpers/zod');

const client = (c) => new OpenAI({ baseURL: at.url + '/v1', apiKey: c.key,
                                   maxRetries: 0 });
const request = (c, more) => ({ model: c.model, input: c.prompt, store: false,
                                ...more });
const tools = [{ type: 'function', name: 'weather', parameters: CITY,
                 strict: false }];

async function raw(stream) {
    const out = { text: '', types: {}, numbers: [], response: null };
    try {
        for await (const event of stream) {
            out.types[event.type] = (out.types[event.type] ?? 0) + 1;
            out.numbers.push(event.sequence_number);
            if (event.type === 'response.output_text.delta') {
                out.text += event.delta;
            }
            out.response = event.response ?? out.response;
        }
    } catch (e) {
        out.error = describe(e);
    }
    return out;
}

// rounds of calls until there are none; ask() returns a response

async function rounds(c, ask) {
    const input = [{ role: 'user', content: c.prompt }];
    const calls = [];
    for (let n = 1; n < 5; n++) {
        const r = await ask(request(c, {
            tools, include, reasoning: { summary: 'auto' },
            input: [...input] }));
        const called = r.output.filter((i) => i.type === 'function_call');
        if (!called.length) {
            return { text: r.output.flatMap((i) => i.content ?? [])
                .map((p) => p.text).join(''),
                     calls, rounds: n, usage: r.usage, model: r.model };
        }
        // the stream runner adds members that the API does not know
        input.push(...JSON.parse(JSON.stringify(r.output, (name, value) =>
            name.startsWith('parsed') ? undefined : value)));
        for (const call of called) {
            calls.push(JSON.parse(call.arguments).city);
            input.push({ type: 'function_call_output', output: '20',
                         call_id: call.call_id });
        }
    }
    throw new Error('no end');
}

add('openai', {
    answer: async (c) => {
        const r = await client(c).responses.create(request(c));
        return { text: r.output_text, status: r.status, model: r.model,
                 usage: r.usage };
    },
    stream: async (c) => raw(await client(c).responses.create(
        request(c, { stream: true }))),
    tools: (c) => rounds(c, (q) => client(c).responses.create(q)),
    tools_raw: (c) => rounds(c, async (q) => (await raw(
        await client(c).responses.create({ ...q, stream: true }))).response),
    tools_helper: (c) => rounds(c, (q) => client(c).responses.stream(q)
        .finalResponse()),
    schema: async (c) => {
        const q = request(c, { text: { format: zodTextFormat(Report,
                                                             'report') } });
        const whole = await client(c).responses.parse(q);
        const stream = await client(c).responses.stream(q).finalResponse();
        return [whole.output_parsed, stream.output_parsed];
    },
    cut: async (c) => raw(await client(c).responses.create(
        request(c, { stream: true }))),
    cut_helper: (c) => client(c).responses.stream(request(c)).finalResponse(),
    failed: async (c) => raw(await client(c).responses.create(
        request(c, { stream: true }))),
    state: (c) => client(c).responses.create(
        request(c, { previous_response_id: 'resp_1' })),
    aborted: async (c) => {
        const stream = await client(c).responses.create(
            request(c, { stream: true }));
        for await (const event of stream) {
            if (event.type === 'response.output_text.delta') {
                return event.delta;
            }
        }
    },
});


// AI SDK: its default model speaks the responses API.  Without "store: false"
// it refers to items that the vendor has stored.

globalThis.AI_SDK_LOG_WARNINGS = false;

for (const [version, ai, provider] of [
    ['5', await load('ai-5'), await load('ai-openai-2')],
    ['6', await load('ai-6'), await load('ai-openai-3')],
    ['7', await load('ai'), await load('@ai-sdk/openai')]]) {

    const options = (c, more) => ({
        model: provider.createOpenAI({ baseURL: at.url + '/v1',
                                       apiKey: c.key })(c.model),
        prompt: c.prompt, maxRetries: 0, onError: () => {},
        providerOptions: { openai: { store: false, include,
                                     forceReasoning: true,
                                     reasoningSummary: 'auto' } }, ...more });

    const loop = async (c, more) => {
        const calls = [];
        const weather = ai.tool({
            description: 'Says the weather', inputSchema: City,
            execute: async ({ city }) => { calls.push(city); return '20'; },
        });
        const r = ai.streamText(options(c, {
            tools: { weather }, stopWhen: ai.stepCountIs(5), ...more }));
        const out = { ...await gather(r), calls };
        if (!out.errors.length) {
            out.steps = (await r.steps).length;
            out.finish = await r.finishReason;
            out.usage = await r.totalUsage;
        }
        return out;
    };

    add('ai' + version, {
        tools: (c) => loop(c),
        stored: (c) => loop(c, { providerOptions: {} }),
        schema: async (c) => {
            const whole = await ai.generateObject(options(c, {
                schema: Report }));
            const r = ai.streamObject(options(c, { schema: Report }));
            for await (const part of r.partialObjectStream) {
                part;
            }
            return [whole.object, await r.object];
        },
        cut: (c) => gather(ai.streamText(options(c))),
        failed: (c) => gather(ai.streamText(options(c))),
        poor: (c) => ai.generateText(options(c)),
    });
}


// Agents SDK.

const agents = await load('@openai/agents');
agents.setTracingDisabled(true);

function agent(c, more) {
    return new agents.Agent({
        name: 'agent',
        model: new agents.OpenAIResponsesModel(client(c), c.model),
        modelSettings: { store: false, providerData: { include } }, ...more });
}

async function steps(c, stream) {
    const calls = [];
    const weather = agents.tool({
        name: 'weather', description: 'Says the weather', parameters: City,
        execute: async ({ city }) => { calls.push(city); return '20'; },
    });
    const r = await agents.run(agent(c, { tools: [weather] }), c.prompt,
                               { stream });
    if (stream) {
        for await (const event of r) {
            event;
        }
        await r.completed;
    }
    return { text: r.finalOutput, calls, rounds: r.rawResponses.length };
}

add('agents', {
    tools: (c) => steps(c, false),
    tools_stream: (c) => steps(c, true),
    schema: async (c) => (await agents.run(
        agent(c, { outputType: Report }), c.prompt)).finalOutput,
    cut: (c) => steps(c, true),
    failed: (c) => steps(c, true),
});


// LangChain.

const { ChatOpenAI } = await load('@langchain/openai');
const { HumanMessage, ToolMessage } = await load('@langchain/core/messages');
const { concat } = await load('@langchain/core/utils/stream');

// "zdrEnabled" is what it calls "store: false"

const chain = (c, more) => new ChatOpenAI({
    model: c.model, apiKey: c.key, maxRetries: 0, useResponsesApi: true,
    zdrEnabled: true, configuration: { baseURL: at.url + '/v1' }, ...more });

async function talk(c, ask) {
    const llm = chain(c, { reasoning: { summary: 'auto' } }).bindTools([{
        type: 'function', function: { name: 'weather', parameters: CITY } }],
        { include });
    const messages = [new HumanMessage(c.prompt)];
    const calls = [];
    for (let n = 1; n < 5; n++) {
        const r = await ask(llm, messages);
        if (!r.tool_calls.length) {
            return { text: r.text, calls, rounds: n };
        }
        messages.push(r);
        for (const call of r.tool_calls) {
            calls.push(call.args.city);
            messages.push(new ToolMessage({ content: '20',
                                            tool_call_id: call.id }));
        }
    }
    throw new Error('no end');
}

add('langchain', {
    tools: (c) => talk(c, (llm, messages) => llm.invoke(messages)),
    tools_stream: (c) => talk(c, async (llm, messages) => {
        let out;
        for await (const chunk of await llm.stream(messages)) {
            out = out === undefined ? chunk : concat(out, chunk);
        }
        return out;
    }),
    schema: (c) => chain(c).withStructuredOutput(Report, {
        method: 'jsonSchema' }).invoke(c.prompt),
    cut: async (c) => {
        for await (const chunk of await chain(c).stream(c.prompt)) {
            chunk;
        }
    },
});

await play();
