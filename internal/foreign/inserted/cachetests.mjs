// This program runs cache-tests, whose directory is the first argument. It starts the suite's origin server, prints its port, reads the port
// of the cache in front of it, and prints the results as JSON. A test that doesn't pass is run a second time, since many tests depend on
// timing.
import { createServer } from 'node:http'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const suite = name => import(pathToFileURL(`${process.argv[2]}/${name}`))
const wanted = new RegExp(process.argv[3])
const atOnce = 60 // most tests wait
const print = console.log
console.log = () => {} // drop the suite's own output

const handlers = {}
for (const name of ['config', 'state', 'test']) {
  handlers[name] = (await suite(`test-engine/server/handle-${name}.mjs`)).default
}
const origin = createServer((request, response) => {
  const [, name, ...rest] = new URL(request.url, 'http://localhost').pathname.split('/')
  handlers[name](rest, request, response)
})
origin.listen(0, '127.0.0.1', () => print(origin.address().port))

const { runTests, getResults } = await suite('test-engine/client/runner.mjs')
const { testResults } = await suite('test-engine/client/test.mjs')
const { determineTestResult, resultTypes } = await suite('test-engine/lib/results.mjs')
const names = new Map(Object.entries(resultTypes).map(([name, type]) => [type, name]))

// The tests of interim answers need a package from npm.
const selected = (await suite('tests/index.mjs')).default.map(set => ({
  ...set,
  tests: set.tests.filter(test => !test.requests.some(request => 'expected_interim_responses' in request))
}))

// run runs the tests for which want returns true, and returns the outcome and message of each.
async function run (url, want) {
  const tests = selected.map(set => ({ ...set, tests: set.tests.filter(want) }))
  for (const test of tests.flatMap(set => set.tests)) delete testResults[test.id]
  await runTests(tests, false, url, atOnce)
  const results = getResults()
  return Object.keys(results).map(id => ({
    id, outcome: names.get(determineTestResult(selected, id, results, process.argv[3] === '.')), message: String(results[id][1] ?? '')
  }))
}

for await (const port of createInterface({ input: process.stdin })) {
  const url = `http://127.0.0.1:${port}`
  const first = await run(url, test => wanted.test(test.id))
  const again = new Set(first.filter(({ outcome }) => /fail|retry/.test(outcome)).map(({ id }) => id))
  print(JSON.stringify(await run(url, test => again.has(test.id))))
  process.exit()
}
