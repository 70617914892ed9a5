// Figures as people read them. Each has about three digits, so that columns keep their width.

const digits = value => value >= 100 || value === Math.round(value) ? 0 : value >= 10 ? 1 : 2

const number = (value, fraction = digits(value)) =>
  value.toLocaleString("en", { minimumFractionDigits: fraction, maximumFractionDigits: fraction })

const scaled = (value, step, units) => {
  let unit = 0
  // 0.9995 of the next unit would be shown as 1,000 of this one.
  while (unit < units.length - 1 && Math.abs(value) >= step * 0.9995) {
    value /= step
    unit++
  }
  return [value, units[unit]]
}

const withUnit = (value, step, units) => {
  const [n, unit] = scaled(value, step, units)
  return unit ? `${number(n)} ${unit}` : number(n)
}

export const count = value => value < 10000 ? number(Math.round(value), 0) : withUnit(value, 1000, ["", "k", "M", "G"])

export const rate = value => value > 0 && value < 10 ? number(value, value === Math.round(value) ? 0 : 1) : count(value)

export const bytes = value => withUnit(value, 1024, ["B", "KB", "MB", "GB", "TB"])

// duration is given in microseconds.
export const duration = value => {
  if (value < 1) return `${Math.round(value * 1000)} ns`
  if (value < 1e6) return withUnit(value, 1000, ["µs", "ms"])
  return `${number(value / 1e6)} s`
}

// span is given in milliseconds, and told by its two largest units.
export const span = milliseconds => {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000))
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]
  const first = parts.findIndex(([size]) => seconds >= size)
  if (first < 0) return "0 s"
  return parts.slice(first, first + 2).map(([size, unit], i) => {
    const n = Math.floor((i === 0 ? seconds : seconds % parts[first][0]) / size)
    return n > 0 ? `${n} ${unit}` : ""
  }).filter(Boolean).join(" ")
}

export const clock = time => new Date(time).toLocaleTimeString("en-GB")
