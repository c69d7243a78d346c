// Runs pipelines of transformers.js on local folders. Arguments: the folder node_modules, and the folder that has the
// models' folders. Reads a JSON list of {model, task, dtype, texts, options}, prints for each a list of answers, one per text.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [nodeModules, models] = process.argv.slice(2);
const { env, pipeline } = createRequire(join(nodeModules, "here.js"))("@huggingface/transformers");
env.allowRemoteModels = false;
env.localModelPath = models;

const results = [];
for (const { model, task, dtype, texts, options } of JSON.parse(readFileSync(0, "utf8"))) {
  const run = await pipeline(task, model, { dtype });
  const answers = [];
  for (const text of texts) {
    const answer = await run(text, options);
    answers.push(answer.tolist ? answer.tolist() : answer);
  }
  results.push(answers);
}
console.log(JSON.stringify(results));
