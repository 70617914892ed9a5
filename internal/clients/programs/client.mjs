// This program uses a server with Node's fetch, http and http2 for a while, and prints the result. Its arguments are the URL without TLS, the
// URL with TLS, and the time in ms.
import http from "node:http";
import https from "node:https";
import http2 from "node:http2";

const [plain, secure, time] = process.argv.slice(2);
const end = Date.now() + Number(time);
const result = { requests: 0, failures: 0, first: "" };
const sizes = { "/small": 13, "/medium": 64 << 10, "/large": 1 << 20, "/slow": 13 };
const body = Buffer.alloc(200 << 10, "a");
const upload = { path: "/body", method: "POST", body };
const early = { path: "/early", method: "POST", body: body.subarray(0, 10 << 10) };
const requests = [...Object.keys(sizes).map((path) => ({ path, method: "GET" })), upload, early, { path: "/events", method: "GET" }];

function check({ path }, status, size, text) {
  if (status !== (path === "/early" ? 401 : 200)) throw new Error(`${path}: status ${status}`);
  if (path in sizes && size !== sizes[path]) throw new Error(`${path}: ${size} bytes`);
  if (path === "/body" && text !== String(body.length)) throw new Error(`${path}: ${text}`);
}

// use sends requests with a client, one after the other, until the time has passed.
async function use(name, send, from) {
  for (let n = from; Date.now() < end; n++) {
    const request = requests[n % requests.length];
    result.requests++;
    try {
      const chunks = [];
      const status = await send(request, (chunk) => chunks.push(chunk));
      const whole = Buffer.concat(chunks);
      check(request, status, whole.length, whole.length < 100 ? whole.toString() : "");
    } catch (error) {
      result.failures++;
      result.first ||= `${name} ${request.path}: ${error.cause ?? error}`;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

const byFetch = (base) => async ({ path, method, body }, got) => {
  const answer = await fetch(base + path, { method, body });
  got(Buffer.from(await answer.arrayBuffer()));
  return answer.status;
};

const byAgent = (module, base) => {
  const agent = new module.Agent({ keepAlive: true });
  return ({ path, method, body }, got) => new Promise((done, failed) => {
    const request = module.request(base + path, { method, agent }, (answer) => {
      answer.on("data", got).on("end", () => done(answer.statusCode)).on("error", failed);
    });
    request.on("error", failed).end(body);
  });
};

const bySession = (base) => {
  const session = http2.connect(base);
  session.on("error", (error) => { result.failures++; result.first ||= `session: ${error}`; });
  session.on("goaway", (code) => { result.failures++; result.first ||= `GOAWAY ${code}`; });
  sessions.push(session);
  return ({ path, method, body }, got) => new Promise((done, failed) => {
    const stream = session.request({ ":path": path, ":method": method });
    let status;
    stream.on("response", (fields) => { status = fields[":status"]; });
    stream.on("data", got).on("end", () => done(status)).on("error", failed).end(body);
  });
};

const sessions = [];
const all = [];
for (const [name, send] of Object.entries({
  "fetch": byFetch(plain), "fetch with TLS": byFetch(secure),
  "http": byAgent(http, plain), "https": byAgent(https, secure),
  "http2": bySession(plain), "http2 with TLS": bySession(secure),
})) {
  for (let i = 0; i < 4; i++) all.push(use(name, send, i));
}
await Promise.all(all);
for (const session of sessions) session.close();
console.log(JSON.stringify(result));
process.exit();
