// Scenes with the chat API of a group that speaks messages: what the Node SDKs
// and the frameworks on top of them build from a translated answer.
//
// usage: node translate.mjs '{"npm": directory of node_modules, "url": gateway,
//     "alice": key}'
//
// The text of each question is the name of its scene, by which the upstream
// selects the answer.

import { at, chat, collect, gather, load, play, scenes } from './play.mjs';

const api = chat('fam-a-large', 'fam-b-one', at.alice);
const usage = { stream_options: { include_usage: true } };

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQD'
    + 'wAEhQGAhKmMIQAAAABJRU5ErkJggg==';
const WEATHER = {
    type: 'object', properties: { city: { type: 'string' } },
    required: ['city'], additionalProperties: false,
};

const z = (await load('zod')).z;
const Report = z.object({ city: z.string(), degrees: z.array(z.number()) });


// openai: its stream runner, its tool runner, its schemas.

const OpenAI = (await load('openai')).default;
const helpers = await load('openai/helpers/zod');

const openai = {
    async same(c, name) {
        const request = api.request(name, { tools: api.tools });
        const whole = await c.chat.completions.create(request);
        const stream = c.chat.completions.stream({ ...request, ...usage });
        const events = {};
        for (const kind of ['content', 'tool_calls.function.arguments.done',
                            'refusal.done']) {
            stream.on(kind, () => { events[kind] = (events[kind] ?? 0) + 1; });
        }
        const message = await stream.finalMessage();
        const total = await stream.totalUsage();
        return { whole: whole.choices[0].message, stream: message, total,
                 finish: whole.choices[0].finish_reason, events };
    },

    async run_tools(c, name, stream = false) {
        const calls = [];
        const runner = c.chat.completions.runTools(api.request(name, {
            stream,
            tools: [{ type: 'function', function: {
                name: 'weather', description: 'Says the weather',
                parameters: WEATHER, parse: JSON.parse,
                function: ({ city }) => { calls.push(city); return '20'; },
            } }],
        }));
        return { text: await runner.finalContent(), calls,
                 roles: runner.messages.map((m) => m.role) };
    },

    run_tools_stream: (c, name) => openai.run_tools(c, name, true),

    async parse(c, name) {
        const request = api.request(name, {
            response_format: helpers.zodResponseFormat(Report, 'report'),
        });
        const whole = await c.chat.completions.parse(request);
        const stream = await c.chat.completions.stream(request)
            .finalChatCompletion();
        return [whole, stream].map((r) => r.choices[0].message.parsed);
    },

    async parse_tool(c, name) {
        const r = await c.chat.completions.parse(api.request(name, {
            tools: [helpers.zodFunction({ name: 'report',
                                          parameters: Report })],
        }));
        return r.choices[0].message.tool_calls[0].function.parsed_arguments;
    },

    async media(c, name) {
        await c.chat.completions.create({ model: api.model, messages: [{
            role: 'user', content: [
                { type: 'text', text: name },
                { type: 'image_url', image_url: {
                    url: 'data:image/png;base64,' + PNG } },
            ],
        }] });
    },

    async error(c, name) {
        return collect(await api.ask(c, name, { stream: true }), api.piece);
    },

    helper_error: (c, name) => api.final(api.helper(c, name)),
    unsupported: (c, name) => api.ask(c, name, { n: 2 }),
    first_event: (c, name) => api.ask(c, name, { stream: true }),

    async abort(c, name) {
        const stream = api.helper(c, name);
        stream.on('content', () => stream.abort());
        return stream.done().catch((e) => e.constructor.name);
    },
};

for (const kind of ['tools', 'thinking', 'refusal', 'between', 'long']) {
    openai['same_' + kind] = openai.same;
}
delete openai.same;

for (const [key, scene] of Object.entries(openai)) {
    const name = 'openai.' + key;
    scenes[name] = () => scene(api.client(OpenAI, name, { maxRetries: 0 }),
                               name);
}


// AI SDK.

const { generateText, streamText, generateObject, streamObject, tool,
        jsonSchema, stepCountIs } = await load('ai');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');

const weather = (calls) => tool({
    description: 'Says the weather', inputSchema: jsonSchema(WEATHER),
    execute: async ({ city }) => { calls.push(city); return '20'; },
});

const ai = {
    async tools(model, prompt) {
        const calls = [];
        const r = await generateText({ model, prompt, maxRetries: 0,
                                       tools: { weather: weather(calls) },
                                       stopWhen: stepCountIs(5) });
        return { text: r.text, calls: calls.sort(), steps: r.steps.length,
                 finish: r.finishReason, input: r.usage.inputTokens };
    },

    async tools_stream(model, prompt) {
        const calls = [];
        const r = streamText({ model, prompt, maxRetries: 0,
                               tools: { weather: weather(calls) },
                               stopWhen: stepCountIs(5) });
        const out = await gather(r);
        return { ...out, text: await r.text, calls: calls.sort(),
                 steps: (await r.steps).length, finish: await r.finishReason,
                 input: (await r.usage).inputTokens };
    },

    async object(model, prompt) {
        const r = await generateObject({ model, prompt, schema: Report,
                                         maxRetries: 0 });
        return r.object;
    },

    async object_stream(model, prompt) {
        const r = streamObject({ model, prompt, schema: Report,
                                 maxRetries: 0 });
        let n = 0;
        for await (const part of r.partialObjectStream) {
            n++;
        }
        return { object: await r.object, parts: n };
    },

    async media(model, prompt) {
        const r = await generateText({ model, maxRetries: 0, messages: [{
            role: 'user', content: [
                { type: 'text', text: prompt },
                { type: 'file', mediaType: 'image/png', data: PNG },
                { type: 'file', mediaType: 'application/pdf',
                  data: 'JVBERi0xLjQ=' },
            ],
        }] });
        return r.text;
    },

    async reasoning(model, prompt) {
        const r = await generateText({
            model, prompt, maxRetries: 0, temperature: 0.5,
            providerOptions: { gateway: { reasoningEffort: 'high' } },
        });
        return { text: r.text, reasoning: r.reasoningText };
    },

    async broken(model, prompt) {
        return gather(streamText({ model, prompt, maxRetries: 0,
                                   onError: () => {} }));
    },

    error: (model, prompt) => generateText({ model, prompt, maxRetries: 0 }),
};

const gateway = createOpenAICompatible({
    name: 'gateway', baseURL: at.url + '/v1', apiKey: at.alice,
    includeUsage: true, supportsStructuredOutputs: true,
});

for (const [key, scene] of Object.entries(ai)) {
    scenes['ai.' + key] = () => scene(gateway(api.model), 'ai.' + key);
}


// LangChain.

const { ChatOpenAI } = await load('@langchain/openai');
const { HumanMessage, SystemMessage, ToolMessage } =
    await load('@langchain/core/messages');
const { concat } = await load('@langchain/core/utils/stream');

const whole = (llm, messages) => llm.invoke(messages);

async function pieces(llm, messages) {
    let out;
    for await (const chunk of await llm.stream(messages)) {
        out = out === undefined ? chunk : concat(out, chunk);
    }
    return out;
}

const langchain = {
    async answer(llm, name, ask = whole) {
        const r = await ask(llm(), [new SystemMessage('Be brief.'),
                                    new HumanMessage(name)]);
        return { text: r.text, input: r.usage_metadata.input_tokens,
                 finish: r.response_metadata.finish_reason };
    },
    answer_stream: (llm, name) => langchain.answer(llm, name, pieces),

    async tools(llm, name, ask = whole) {
        const model = llm().bindTools([{
            type: 'function', function: { name: 'weather',
                                          parameters: WEATHER } }]);
        const messages = [new HumanMessage(name)];
        const calls = [];
        for (let n = 0; n < 5; n++) {
            const r = await ask(model, messages);
            if (!r.tool_calls.length) {
                return { text: r.text, calls, steps: n + 1 };
            }
            messages.push(r);
            for (const call of r.tool_calls) {
                calls.push(call.args.city);
                messages.push(new ToolMessage({
                    content: '20', tool_call_id: call.id }));
            }
        }
        throw new Error('no end');
    },
    tools_stream: (llm, name) => langchain.tools(llm, name, pieces),

    schema: (llm, name) => llm()
        .withStructuredOutput(Report, { method: 'jsonSchema' }).invoke(name),
    function: (llm, name) => llm()
        .withStructuredOutput(Report, { method: 'functionCalling',
                                        name: 'report' }).invoke(name),
    broken: (llm, name) => pieces(llm(), [new HumanMessage(name)]),
};

for (const [key, scene] of Object.entries(langchain)) {
    const llm = (options) => new ChatOpenAI({
        model: api.model, apiKey: at.alice, maxRetries: 0,
        configuration: { baseURL: at.url + '/v1' }, ...options });
    scenes['langchain.' + key] = () => scene(llm, 'langchain.' + key);
}

await play();
