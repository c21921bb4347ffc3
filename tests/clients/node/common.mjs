// What the Node programs share: the environment, the checks, the way to end.

import { webcrypto } from "node:crypto";

// Node 18 has it, but not as a global.
globalThis.crypto ??= webcrypto;

const environment = (name) => {
  const value = process.env[name];
  if (!value) fail(`${name} is not set`);
  return value;
};

export function fail(what) {
  console.error(what);
  process.exit(1);
}

export function check(holds, what) {
  if (!holds) fail(what);
}

// Node reads additional authorities from this variable alone, and only when it starts.
environment("NODE_EXTRA_CA_CERTS");

export const issuer = new URL(environment("CARDEA_ISSUER"));
export const clientId = environment("CARDEA_CLIENT_ID");
export const clientSecret = environment("CARDEA_CLIENT_SECRET");
export const apiUrl = new URL(environment("CARDEA_API_URL"));
export const parameters = {
  scope: environment("CARDEA_SCOPE"),
  resource: environment("CARDEA_RESOURCE"),
};

// A call without a token is answered 401, with a Bearer challenge (RFC 6750 section 3).
export async function checkRefusedWithoutToken() {
  const answer = await fetch(apiUrl);
  await answer.arrayBuffer();
  check(answer.status === 401, `without a token: expected 401, got ${answer.status}`);
  const challenge = answer.headers.get("www-authenticate") ?? "";
  check(/^bearer/i.test(challenge), `without a token: challenge is "${challenge}"`);
}

// A call with a token is answered 200, with JSON.
export async function checkAnswer(what, answer) {
  const body = await answer.text();
  check(answer.status === 200, `${what}: expected 200, got ${answer.status}: ${body}`);
  JSON.parse(body);
}

// Runs the program; whatever it throws ends it with status 1.
export function main(program) {
  program().catch((error) => fail(error.stack ?? String(error)));
}
