// The pages that `make site` makes of the repository's Markdown files, where they stand and as GitHub reads them.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'

const root = join(import.meta.dirname, '../..')
const read = file => readFileSync(join(root, file), 'utf8')
const module = read('go.mod').match(/^module (.+)$/m)[1]

// Every Markdown file is a page, except those for people and programs that work in the repository.
const unpaged = /^(\.github|arena|internal|ossfuzz)\/|^AGENTS\.md$/
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], { cwd: root, encoding: 'utf8' })
const [pages, others] = [[], []]
for (const file of files.trim().split('\n')) (unpaged.test(file) ? others : pages).push(file)
pages.push('site/api.md') // the Makefile writes it, git ignores it
const rewrite = page => page.replace('site/api', 'api').replace(/README\.md$/, 'index.md')

// target returns where a link in a file leads on the site: to a page, or to GitHub.
function target(href, from) {
  if (href === `https://pkg.go.dev/${module}`) return '/api.md'
  if (/^([a-z]+:|#)/.test(href)) return href
  const [path, fragment] = href.split('#')
  const to = posix.join(posix.dirname(from), path).replace(/\/$/, '')
  if (!existsSync(join(root, to))) throw new Error(`${from}: the link ${href} is dead`)
  const page = [to, posix.join(to, 'README.md')].find(file => pages.includes(file))
  const url = page ? '/' + rewrite(page) : `https://${module}/${statSync(join(root, to)).isDirectory() ? 'tree' : 'blob'}/main/${to}`
  return fragment ? `${url}#${fragment}` : url
}

// The sidebar has the groups and links of docs/README.md. Pages in folders below a linked README.md are its children.
const index = 'docs/README.md'
const sidebar = []
for (const line of read(index).split('\n')) {
  const group = line.match(/^\*\*(.+)\*\*$/)
  if (group) sidebar.push({ text: group[1], items: [] })
  if (!/^ *- /.test(line)) continue
  let nested = line.startsWith(' ')
  for (const [, text, href] of line.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g)) {
    const items = sidebar.at(-1).items
    const folder = posix.join('docs', href).match(/^(.+\/)README\.md$/)?.[1]
    const below = folder ? pages.filter(page => page !== folder + 'README.md' && page.startsWith(folder)) : []
    const item = {
      text, link: target(href, index), collapsed: true,
      items: below.map(page => ({ text: posix.dirname(page).slice(folder.length), link: '/' + rewrite(page) })),
    }
    if (nested) items.at(-1).items.push(item)
    else items.push(item)
    nested = true
  }
}
const listed = JSON.stringify(sidebar)
for (const page of pages) {
  if (page !== 'README.md' && page !== index && !listed.includes(`"/${rewrite(page)}"`)) throw new Error(`${index} doesn't list ${page}`)
}

const css = `
.VPDoc .content-container { max-width: 780px !important }
.VPDoc .container { max-width: 1120px !important }
.vp-doc [class*=language-] code { font-size: 13px }
.vp-doc td, .vp-doc th { padding: 6px 12px; vertical-align: top }
.vp-doc thead:not(:has(th:not(:empty))) { display: none }
@media (min-width: 960px) { .VPDoc .content { padding-inline: 16px !important } .vp-doc [class*=language-] code { padding: 0 14px } }
`

export default {
  title: 'filo',
  description: read('README.md').match(/^\*\*(.+)\*\*$/m)[1],
  srcDir: root,
  srcExclude: others,
  outDir: '../.bin/site',
  cacheDir: 'node_modules/.vitepress',
  rewrites: rewrite,
  ignoreDeadLinks: 'localhostLinks', // of the examples
  head: [['style', {}, css], ['link', { rel: 'icon', href: 'data:image/svg+xml,' + encodeURIComponent(read('dashboard/assets/icon.svg')) }]],
  themeConfig: {
    nav: [{ text: 'Documents', link: target('README.md', index) }, { text: 'Examples', link: target('../examples/README.md', index) }],
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: `https://${module}` }],
  },
  markdown: {
    attrs: { disable: true }, // GitHub shows {this}
    anchor: { slugify: title => title.toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, '').replaceAll(' ', '-') },
    languageAlias: { haproxy: 'nginx' },
    config(md) {
      // An indented block looks as a fenced one does.
      md.renderer.rules.code_block = (...args) => md.renderer.rules.fence(...args)
      // Vue would take {{this}} for code of its own.
      const render = md.render
      md.render = (...args) => render.apply(md, args).replaceAll('{{', '&lbrace;&lbrace;')
      const link = md.renderer.rules.link_open
      md.renderer.rules.link_open = (tokens, i, options, env, self) => {
        const from = posix.relative(root, env.realPath ?? env.path)
        tokens[i].attrSet('href', target(tokens[i].attrGet('href'), from))
        return link(tokens, i, options, env, self)
      }
    },
  },
  // Pages above this folder don't find what is installed in it. The search's index is a large chunk.
  vite: { build: { chunkSizeWarningLimit: 2000 }, resolve: { alias: { vue: join(import.meta.dirname, '../node_modules/vue') } } },
  // target fails at a link to a missing file, this at one to a missing heading.
  buildEnd({ outDir, site }) {
    const html = new Map()
    for (const file of readdirSync(outDir, { recursive: true })) {
      if (file.endsWith('.html')) html.set(site.base + file, readFileSync(join(outDir, file), 'utf8'))
    }
    for (const [file, text] of html) {
      for (const [, path, fragment] of text.matchAll(/<a [^>]*href="([^"#:]*)#([^"]+)"/g)) {
        const to = html.get(path ? path.replace(/\/$/, '/index.html') : file)
        if (!to?.includes(` id="${decodeURIComponent(fragment)}"`)) throw new Error(`${file}: the link ${path}#${fragment} is dead`)
      }
    }
  },
}
