// oauth4webapi: discovery by both well-known addresses, client credentials by both ways, calls with the
// token, and the access token itself validated against the published keys (RFC 9068).

import { apiUrl, check, checkAnswer, checkRefusedWithoutToken, clientId, clientSecret, issuer, main, parameters } from "./common.mjs";
import * as oauth from "oauth4webapi";

const methods = {
  client_secret_basic: oauth.ClientSecretBasic,
  client_secret_post: oauth.ClientSecretPost,
};

async function discover(algorithm) {
  const response = await oauth.discoveryRequest(issuer, { algorithm });
  return oauth.processDiscoveryResponse(issuer, response);
}

main(async () => {
  await checkRefusedWithoutToken();
  const server = await discover("oidc");
  const same = await discover("oauth2");
  check(same.token_endpoint === server.token_endpoint, "the two metadata documents disagree");

  const client = { client_id: clientId };
  const ask = (authentication) =>
    oauth.clientCredentialsGrantRequest(server, client, authentication, new URLSearchParams(parameters));

  for (const [name, method] of Object.entries(methods)) {
    const tokens = await oauth.processClientCredentialsResponse(server, client, await ask(method(clientSecret)));
    check(tokens.token_type === "bearer", `${name}: token_type is ${tokens.token_type}`);
    check(tokens.expires_in > 0, `${name}: expires_in is ${tokens.expires_in}`);
    await checkAnswer(name, await oauth.protectedResourceRequest(tokens.access_token, "GET", apiUrl));

    const request = new Request(apiUrl, { headers: { authorization: `Bearer ${tokens.access_token}` } });
    const claims = await oauth.validateJwtAccessToken(server, request, parameters.resource);
    check(claims.sub === clientId, `${name}: sub is ${claims.sub}, not ${clientId}`);

    const refused = await ask(method(`${clientSecret}x`));
    check(refused.status === 401, `${name}: a wrong secret gives ${refused.status}`);
    const { error } = await refused.json();
    check(error === "invalid_client", `${name}: a wrong secret gives ${error}`);
  }
  console.log("ok oauth4webapi");
});
