// Command prose finds phrases that a reader has to read twice, in the Go comments and the documents of a repository.
//
//	prose [folder]
//
// It reads the comments of every Go file except tests, and every document in Markdown. For each phrase it prints its position and advice on how to
// replace it.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	found, err := checkTree(root)
	for _, f := range found {
		fmt.Fprintln(os.Stderr, f)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "prose: %v\n", err)
	}
	if err != nil || len(found) > 0 {
		os.Exit(1)
	}
}

// A pattern is a kind of phrase that needs a second reading.
type pattern struct {
	phrase *regexp.Regexp
	unless *regexp.Regexp // phrases that also match this are right; nil: no exceptions
	advice string
}

var patterns = []pattern{
	{
		regexp.MustCompile(`\b[Ww]hat (?:\w+ ){1,3}(?:has|have|had)(?:[.,;:)]| (?:in|of|to|for|from|with|at|on|by|and|or|is|are|was|now|here|there|left|besides|beyond|itself)\b)`),
		regexp.MustCompile(`(?:has|have|had) to\b`),
		"name the thing that it has",
	},
	{regexp.MustCompile(`\b(?:takes?|took|taking|taken) note\b`), nil, "records, marks"},
	{regexp.MustCompile(`\bnotes (?:an?|that|the|what|whether|how|when|who)\b`), nil, "records, marks"},
	{regexp.MustCompile(`(?:^|[.;:] )Who \w+|\b(?:of|for|to|by|from|with|without|until) who\b`), regexp.MustCompile(`Who (?:is|are|may|owns)\b`), "name who: the client, a handler, the caller"},
	{regexp.MustCompile(`\b[Ww]hoever\b`), nil, "name who: the goroutine that, a caller that"},
	{regexp.MustCompile(`\b(?:is|are|was|were|be) (?:that|those) (?:of|to|for|in)\b`), nil, "repeat the noun, or give the verb to the thing itself"},
	{regexp.MustCompile(`\b(?:is|are|was|were|isn't|aren't) to (?:be|[a-z]+)\b`), regexp.MustCompile(`to (?:an?|the|it|them|this|that|those|its|their|each|every|one|others?)$`), "must, will, should, or the verb alone"},
	{regexp.MustCompile(`\bin (?:its|their|his|her|whose) stead\b`), nil, "instead of it, for it"},
	{regexp.MustCompile(`\bin the place of\b`), nil, "instead of, at the position of"},
	{regexp.MustCompile(`\btells? of\b`), nil, "reports, describes, has"},
	{regexp.MustCompile(`\bbut for\b`), nil, "except, except for"},
	{regexp.MustCompile(`\bwaits? so\b(?: \w+)?`), regexp.MustCompile(`so (?:that|long)`), "say what waits for what"},
	{regexp.MustCompile(`\bso many\b(?: \w+)?`), regexp.MustCompile(`so many that`), "n, that number of"},
	{
		regexp.MustCompile(`(?:\w+,? )?\bof which\b`),
		regexp.MustCompile(`(?i)^(?:all|any|both|each|either|every|few|half|many|most|none|one|some|two|three) of`),
		"end the sentence, and name the thing in the next one",
	},
	{
		regexp.MustCompile(`\b(?:connections?|functions?|handlers?|tasks?|streams?|clients?|body|bodies|middleware|documents?|director(?:y|ies)|deadlines?|calls?) of \[?(?:[A-Z]\w*\.)?[A-Z][a-z]\w*`),
		regexp.MustCompile(`of (?:Go|Linux|Redis|WebSockets?)$`),
		"say what the function does with it: opened by Accept, given to OnClose, a call to Read",
	},
	{
		regexp.MustCompile(`\b(?:(?:an?|the|this|each|no|another|first|last|next|further|earlier|later) look|(?:the|two|few|many|several|further) looks)\b(?: \w+)?`),
		regexp.MustCompile(`looks (?:like|for|up|after|into|whether|as)$`),
		"a check",
	},
	{
		regexp.MustCompile(`(?:^|\(|[.:;,] |\b(?:and|but|so|that) )[Ww]hat (?:is|are|was|were|has|have|had|comes?|came) [^.,;:]{2,40}? (?:is|isn't|are|aren't|was|were|goes|waits|may|must|can|gets)\b`),
		regexp.MustCompile(` (?:that|who|nobody|nothing) (?:is|are|was|were)$`),
		"name the thing, and begin the sentence with it",
	},
	{regexp.MustCompile(`[:;,] that of (?:an?|the|its|each)\b`), nil, "repeat the noun"},
	{
		regexp.MustCompile(`\b[a-z]+ of (?:(?:an?|the) [a-z]+|Go|npm)'s(?:[.,;:)]| (?:that|which|is|are|was|has|too)\b| $)`),
		regexp.MustCompile(`\b(?:one|any|some|all|none|each|both|two|instead|front|inside|outside|because|ahead|place) of`),
		"the handler's error, one of Go's files",
	},
	{regexp.MustCompile(`\b[Rr]eplac(?:es?|ing) (?:[^ .,;:]+ ){1,6}by (?:an?|the|those|one|its|their|nil|spaces?|\d+)\b`), nil, "replaces it with"},
	{regexp.MustCompile(`\banswer(?:s|ed)? (?:[^ .,;:]+ ){0,4}by (?:an? reset|[1-5]\d\d)\b`), nil, "answers it with"},
	{regexp.MustCompile(`\b[Aa]nother (?:\w+ ){1,2}than\b`), nil, "a host other than, a different host"},
	{regexp.MustCompile(`\b(?:is|are) for how (?:long|many)\b`), nil, "is how long"},
	{
		regexp.MustCompile(`\b(?:is|are|was|were) of (?:an?|the|another)(?: \w+){1,2}`),
		regexp.MustCompile(`of (?:an?|the|another) (?:\w+ )?(?:class|kind|size|sort|type)\b`),
		"belongs to, comes from",
	},
	{regexp.MustCompile(`[;.] [Tt]he (?:\w+'s )?\w+'s $`), nil, "say who uses or sets it: only the owner uses it"},
	{
		regexp.MustCompile(`\bmak(?:es?|ing) (?:an? |no |the )?\w+ of (?:an?|the|it|them|this|each)\b`),
		regexp.MustCompile(`mak(?:es?|ing) (?:use|fun|copies|sense)|(?:one|each|all|any|an? (?:copy|list|part|member|group|set)|the [a-z]+) of`),
		"turns it into, makes one from it",
	},
	{regexp.MustCompile(`\b(?:know|knows|knew) of (?:an?|the|it|one)\b`), nil, "knows about"},
	{regexp.MustCompile(`(?:^|[.:;] )Of (?:an?|the|these|those|this|that|several|two|others?|such|what|it|them|its|each|[a-z]{2,}s)\b`), regexp.MustCompile(`Of (?:is|returns)$`), "begin with the subject"},
}

// A finding is a phrase that matched a pattern.
type finding struct {
	file   string
	line   int
	phrase string
	advice string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: %s", f.file, f.line, f.phrase, f.advice)
}

// checkTree checks the files below a folder.
func checkTree(root string) (found []finding, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			name, made := d.Name(), path == filepath.Join(root, "site") // site's documents are generated from the others, or come from other projects
			if path != root && (name == "testdata" || made || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		isGo := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if !isGo && !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := documentLines(string(text))
		if isGo {
			if lines, err = commentLines(path, text); err != nil {
				return err
			}
		}
		found = append(found, check(path, lines)...)
		return nil
	})
	return found, err
}

// A line is a line of prose. An empty text ends a paragraph.
type line struct {
	number int
	text   string
}

// check joins the lines of each paragraph, and matches the patterns against it.
func check(file string, lines []line) (found []finding) {
	var paragraph string
	var starts, numbers []int // for each line: its offset in paragraph, and its number in the file
	for _, l := range append(lines, line{}) {
		if l.text != "" {
			starts, numbers = append(starts, len(paragraph)), append(numbers, l.number)
			paragraph += l.text + " "
			continue
		}
		for _, p := range patterns {
			for _, at := range p.phrase.FindAllStringIndex(paragraph, -1) {
				phrase := paragraph[at[0]:at[1]]
				if p.unless != nil && p.unless.MatchString(phrase) {
					continue
				}
				i := len(starts) - 1
				for starts[i] > at[0] {
					i--
				}
				found = append(found, finding{file, numbers[i], phrase, p.advice})
			}
		}
		paragraph, starts, numbers = "", nil, nil
	}
	return found
}

// commentLines returns the lines of a Go file's comments, without indented code in them.
func commentLines(path string, text []byte) (lines []line, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			number := files.Position(c.Pos()).Line
			for i, s := range strings.Split(commentText(c), "\n") {
				if strings.HasPrefix(s, "\t") || strings.HasPrefix(s, "  ") {
					s = ""
				}
				lines = append(lines, line{number + i, strings.TrimSpace(s)})
			}
		}
		lines = append(lines, line{})
	}
	return lines, nil
}

// commentText returns a comment without its markers, or "" for a directive.
func commentText(c *ast.Comment) string {
	if inner, ok := strings.CutPrefix(c.Text, "/*"); ok {
		return strings.TrimSuffix(inner, "*/")
	}
	text := strings.TrimPrefix(c.Text, "//")
	if text != "" && text[0] != ' ' && text[0] != '\t' {
		return "" // a directive, such as go:build
	}
	return strings.TrimPrefix(text, " ")
}

// documentLines returns the lines of a Markdown document, without code blocks. Each row of a table counts as a paragraph.
func documentLines(text string) (lines []line) {
	fenced := false
	for i, s := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(s)
		fence := strings.HasPrefix(trimmed, "```")
		if fence {
			fenced = !fenced
		}
		if fence || fenced || strings.HasPrefix(s, "    ") {
			trimmed = ""
		}
		if strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "#") {
			lines = append(lines, line{})
			for _, cell := range strings.Split(trimmed, "|") {
				lines = append(lines, line{i + 1, strings.TrimSpace(strings.TrimLeft(cell, "#- "))}, line{})
			}
			if !strings.HasPrefix(trimmed, "- ") {
				continue
			}
			lines = lines[:len(lines)-1] // the next line may continue the list item
			continue
		}
		lines = append(lines, line{i + 1, trimmed})
	}
	return lines
}
