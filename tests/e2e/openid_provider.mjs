// An OpenID provider for the browser tests: any password is right, and the claims are those of the first argument.
// Arguments: JSON of the claims by name, issuer, redirect address of the dashboard, folder `node_modules`.
import { pathToFileURL } from "node:url"

const [claims, issuer, redirect, modules] = process.argv.slice(2)
const people = JSON.parse(claims)
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`))

const provider = new Provider(issuer, {
  clients: [{
    client_id: "ortune",
    client_secret: "a secret of the tests",
    redirect_uris: [redirect],
    post_logout_redirect_uris: [redirect],
  }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  conformIdTokenClaims: false, // Streamlit reads the ID token only
  findAccount: (_, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
  async loadExistingGrant(ctx) { // without the page that asks for consent
    const { client, session, provider: { Grant } } = ctx.oidc
    const grant = new Grant({ clientId: client.clientId, accountId: session.accountId })
    grant.addOIDCScope("openid email groups")
    await grant.save()
    return grant
  },
  cookies: { keys: ["a key of the tests"] },
})
const { hostname, port } = new URL(issuer)
provider.listen(Number(port), hostname, () => console.log("ready"))
