// Texts on standard input to vectors on standard output, by OpenAI's library for Node; an error by its class and message.
const { readFileSync } = require("node:fs");
const { OpenAI } = require("openai");

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "unused" });
client.embeddings
  .create({ model, input: JSON.parse(readFileSync(0)) })
  .then((answer) => ({ vectors: answer.data.map((one) => one.embedding) }))
  .catch((error) => ({ error: error.constructor.name, message: error.message }))
  .then((told) => console.log(JSON.stringify(told)));
