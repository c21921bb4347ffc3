// openid-client: discovery, client credentials by both ways, calls with the token.

import { apiUrl, check, checkAnswer, checkRefusedWithoutToken, clientId, clientSecret, issuer, main, parameters } from "./common.mjs";
import * as client from "openid-client";

const methods = {
  client_secret_basic: client.ClientSecretBasic,
  client_secret_post: client.ClientSecretPost,
};

main(async () => {
  await checkRefusedWithoutToken();
  for (const [name, method] of Object.entries(methods)) {
    const server = await client.discovery(issuer, clientId, undefined, method(clientSecret));
    check(server.serverMetadata().issuer === process.env.CARDEA_ISSUER, `${name}: wrong issuer`);
    const tokens = await client.clientCredentialsGrant(server, parameters);
    check(tokens.expiresIn() > 0, `${name}: expires_in is ${tokens.expires_in}`);
    const answer = await client.fetchProtectedResource(server, tokens.access_token, apiUrl, "GET");
    await checkAnswer(name, answer);

    const stranger = await client.discovery(issuer, clientId, undefined, method(`${clientSecret}x`));
    const error = await client.clientCredentialsGrant(stranger, parameters).then(() => undefined, (e) => e);
    // A 401 with a challenge comes as WWWAuthenticateChallengeError, whose cause is the list of challenges.
    const refused = error instanceof client.ResponseBodyError
      ? error.error === "invalid_client"
      : error instanceof client.WWWAuthenticateChallengeError && error.status === 401;
    check(refused, `${name}: a wrong secret gives ${error}`);
  }
  console.log("ok openid-client");
});
