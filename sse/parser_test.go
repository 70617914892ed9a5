package sse_test

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// parsed is an event as a client's listeners receive it. A block that concerns only the client itself has no type.
type parsed struct {
	id, kind, data string
}

// parser reads a stream exactly as WHATWG HTML, sections 9.2.5 and 9.2.6, specifies, line by line and without shortcuts.
type parser struct {
	in       *bufio.Reader
	started  bool
	skipLF   bool // the previous line ended with CR
	lastID   string
	retry    string // the last one
	comments []string
}

func newParser(in io.Reader) *parser { return &parser{in: bufio.NewReaderSize(in, 1024)} }

// line reads a line. A last line without a line break doesn't count.
func (p *parser) line() (string, error) {
	var line []byte
	for {
		b, err := p.in.ReadByte()
		if err != nil {
			return "", err
		}
		skip := p.skipLF && b == '\n'
		p.skipLF = b == '\r'
		switch {
		case skip:
		case b == '\r', b == '\n':
			text := strings.ToValidUTF8(string(line), "\ufffd")
			if !p.started {
				// "one leading U+FEFF BYTE ORDER MARK character must be ignored if any are present"
				p.started, text = true, strings.TrimPrefix(text, "\ufeff")
			}
			return text, nil
		default:
			line = append(line, b)
		}
	}
}

// next returns the next event. Blocks without data that change the last event ID are returned too, without a type.
func (p *parser) next() (parsed, error) {
	var data strings.Builder
	kind, id, hasData, hasID := "", p.lastID, false, false
	for {
		line, err := p.line()
		if err != nil {
			return parsed{}, err
		}
		if line == "" {
			p.lastID = id
			switch {
			case hasData:
				if kind == "" {
					kind = "message"
				}
				return parsed{id, kind, strings.TrimSuffix(data.String(), "\n")}, nil
			case hasID:
				return parsed{id: id}, nil
			}
			kind = ""
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			p.comments = append(p.comments, value)
		case "event":
			kind = value
		case "data":
			hasData = true
			data.WriteString(value + "\n")
		case "id":
			if !strings.Contains(value, "\x00") {
				id, hasID = value, true
			}
		case "retry":
			if _, err := strconv.ParseUint(value, 10, 64); err == nil {
				p.retry = value
			}
		}
	}
}
