// generate.mjs MODEL PROMPT TOKENS - a program that somebody wrote with node-llama-cpp, and that knows nothing of sluice:
// it loads a model with the prebuilt libraries and prints a greedy completion as JSON. Started by node.sh, twice.
import { getLlama, LlamaCompletion, LlamaLogLevel } from "node-llama-cpp";

const [modelPath, prompt, tokens] = process.argv.slice(2);
const llama = await getLlama({
    gpu: false,
    build: "never", // the prebuilt libraries or none
    skipDownload: true,
    progressLogs: false,
    logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath, gpuLayers: 0 });
// One thread: several of these libraries' (they are built without OpenMP) spin while they wait for each other, and crawl on
// a busy machine. The gates use two.
const context = await model.createContext({ contextSize: 256, threads: 1 });
const completion = new LlamaCompletion({ contextSequence: context.getSequence() });
const text = await completion.generateCompletion(prompt, { maxTokens: Number(tokens), temperature: 0 });
console.log(JSON.stringify({ build: llama.buildType, release: llama.llamaCppRelease.release, text }));
await completion.dispose();
await context.dispose();
await model.dispose();
await llama.dispose();
