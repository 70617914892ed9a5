// Tables whose rows stay where they are while their figures change, and move only when their order does.

export class Table {
  // Columns are functions that fill a cell with what a row has; the first one's is a header.
  constructor(body, columns) {
    this.body = body
    this.columns = columns
    this.lines = new Map()
  }

  update(rows) {
    const seen = new Set()
    rows.forEach((row, place) => {
      let key = row.name
      while (seen.has(key)) key += " " // names needn't differ
      seen.add(key)
      let line = this.lines.get(key)
      if (!line) {
        line = document.createElement("tr")
        this.columns.forEach((_, i) => {
          const cell = document.createElement(i === 0 ? "th" : "td")
          if (i === 0) cell.scope = "row"
          line.append(cell)
        })
        this.lines.set(key, line)
      }
      this.columns.forEach((fill, i) => fill(line.children[i], row, rows))
      if (this.body.children[place] !== line) this.body.insertBefore(line, this.body.children[place] ?? null)
    })
    for (const [key, line] of this.lines) {
      if (seen.has(key)) continue
      line.remove()
      this.lines.delete(key)
    }
  }
}

// text fills a cell with what f makes of a row.
export const text = f => (cell, row) => {
  const content = f(row)
  if (cell.textContent === content) return
  // A long path is best broken behind a slash, but not behind its first one.
  cell.replaceChildren(...content.split(/(?<=\S\/)/).flatMap(part => [part, document.createElement("wbr")]))
}

// figure does so for a number, which is dimmed if it is 0.
export const figure = (value, format, mark = "") => (cell, row) => {
  const n = value(row)
  cell.textContent = n > 0 ? format(n) : "–"
  cell.className = n > 0 ? mark : "zero"
}

// share shows a number, and by a line below it which part of the largest it is.
export const share = (value, format) => (cell, row, rows) => {
  const largest = Math.max(...rows.map(value), 1e-9)
  cell.className = value(row) > 0 ? "share" : "share zero"
  cell.style.setProperty("--share", value(row) / largest)
  if (!cell.firstChild) cell.append(document.createElement("span"))
  cell.firstChild.textContent = value(row) > 0 ? format(value(row)) : "–"
}

// kind shows one of a few words, by the name that it has in names.
export const kind = (value, names) => (cell, row) => {
  if (!cell.firstChild) {
    cell.append(document.createElement("span"))
    cell.firstChild.className = "kind"
  }
  cell.firstChild.dataset.kind = value(row)
  cell.firstChild.textContent = names[value(row)] ?? value(row)
}
