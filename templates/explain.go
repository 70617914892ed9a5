package templates

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/filohttp/filo"
)

// place finds the file and line in an error of a template; the error has them only in its text.
var place = regexp.MustCompile(`template: ?([^\s:]+):(\d+)`)

// around is how many lines are shown before and after the one with the error.
const around = 3

// explained returns the error for the response. With Options.Reload, its text includes the lines of the template around the mistake.
// Otherwise it is err itself, whose text the client doesn't see.
func (t *Templates) explained(err error) error {
	if !t.options.Reload {
		return err
	}
	return &filo.HTTPError{Status: 500, Detail: err.Error() + t.excerpt(err), Err: err}
}

// excerpt returns the lines around the one with the error.
func (t *Templates) excerpt(err error) string {
	found := place.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	text, readErr := fs.ReadFile(t.fsys, found[1])
	at, numberErr := strconv.Atoi(found[2])
	if readErr != nil || numberErr != nil {
		return ""
	}
	b := new(strings.Builder)
	b.WriteString("\n\n" + found[1] + ":\n")
	for i, line := range strings.Split(string(text), "\n") {
		number := i + 1
		if number < at-around || number > at+around {
			continue
		}
		mark := " "
		if number == at {
			mark = ">"
		}
		fmt.Fprintf(b, "%s %4d  %s\n", mark, number, line)
	}
	return b.String()
}
