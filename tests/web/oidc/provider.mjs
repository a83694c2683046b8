// An OpenID Connect provider on a free port of loopback. It prints its issuer, then lets any user sign in with any
// password. The groups of a user are the part of its name before the dot: `platform.ann` is in `platform`.
// Argument: the folder with node_modules.
import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [home] = process.argv.slice(2);
const require = createRequire(`${home}/`);
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const server = http.createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'penstock',
      client_secret: 'a-secret-of-the-client',
      redirect_uris: ['http://127.0.0.1/login/callback'], // of a native client: any port
      application_type: 'native',
      grant_types: ['authorization_code'],
      response_types: ['code'],
    },
  ],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
  scopes: ['openid', 'email', 'groups'],
  pkce: { required: () => true },
  cookies: { keys: ['a-key-for-tests'] },
  features: { devInteractions: { enabled: true } },
  async findAccount(_context, id) {
    const groups = [id.split('.')[0]];
    const claims = { sub: id, email: `${id}@example.com`, email_verified: !id.includes('unverified'), groups };
    return { accountId: id, claims: async () => claims };
  },
});
server.on('request', provider.callback());
console.log(issuer);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
