package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/filohttp/filo/internal/gotool"
)

// h2specTime is the maximum time for h2spec. For each answer that doesn't arrive, h2spec waits two seconds.
const h2specTime = 10 * time.Minute

// runH2spec runs h2spec against a server in a separate process, without TLS and with TLS. Each case of h2spec is a test, with a name such
// as http2/6.9.1/2/h2c: the case's own name, and the protocol.
func (r *report) runH2spec(o *options, dir string) error {
	wanted, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	program := o.h2spec
	if program == "" {
		if program, err = r.suite.buildH2spec(dir, o); err != nil {
			return err
		}
	}
	return r.repeat(o, wanted, func() ([]*testRun, error) { return h2spec(o, program, dir) })
}

// buildH2spec downloads and builds the program, and returns its path.
func (s *suite) buildH2spec(dir string, o *options) (string, error) {
	if _, err := gotool.Download(filepath.Dir(dir), s.module, s.version); err != nil {
		return "", err
	}
	requirements, err := os.ReadFile(o.inserted("h2spec.mod.txt"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), requirements, 0o644); err != nil {
		return "", err
	}
	if err := gotool.Command(dir, "mod", "edit", "-require="+s.module+"@"+s.version).Run(); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "program")
	return program, gotool.Command(dir, "build", "-mod=mod", "-o", program, s.module+"/cmd/h2spec").Run()
}

// h2spec runs the program against the two ports of a server, and returns its cases.
func h2spec(o *options, program, dir string) ([]*testRun, error) {
	var ports [2]int
	stop, err := startServer(o, "h2server", filepath.Join(dir, "server"), nil, &ports[0], &ports[1])
	if err != nil {
		return nil, fmt.Errorf("h2server: %w", err)
	}
	runs := inParallel(o.parallel, []func() []*testRun{
		func() []*testRun { return h2specRun(o, program, filepath.Join(dir, "h2c.xml"), "h2c", ports[0]) },
		func() []*testRun {
			return h2specRun(o, program, filepath.Join(dir, "tls.xml"), "tls", ports[1], "-t", "-k")
		},
	})
	return slices.Concat(runs...), stop()
}

// h2specRun runs the program once, and returns its cases.
func h2specRun(o *options, program, file, protocol string, port int, flags ...string) []*testRun {
	ctx, cancel := context.WithTimeout(context.Background(), h2specTime)
	defer cancel()
	args := append(flags, "-S", "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-j", file)
	os.Remove(file) // the result of an earlier run
	output, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	text, noReport := os.ReadFile(file)
	if noReport == nil {
		var runs []*testRun
		if runs, noReport = readH2spec(text, protocol); noReport == nil && len(runs) > 0 {
			if o.verbose {
				fmt.Printf("%s\n", output)
			}
			return runs
		}
	}
	output = fmt.Appendf(output, "\n%v, %v\n", err, noReport)
	return []*testRun{{test: protocol, reached: true, failed: []string{protocol}, output: output}}
}

// readH2spec returns the cases of h2spec's XML report.
func readH2spec(text []byte, protocol string) (runs []*testRun, err error) {
	var all struct {
		Sections []struct {
			Name  string `xml:"package,attr"`
			Cases []struct {
				Name    string    `xml:"classname,attr"`
				Failure *string   `xml:"failure"`
				Error   *string   `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.Strict = false // h2spec doesn't escape text that it has received from the server
	if err := decoder.Decode(&all); err != nil {
		return nil, err
	}
	for _, section := range all.Sections {
		for i, c := range section.Cases {
			run := &testRun{test: fmt.Sprintf("%s/%d/%s", section.Name, i+1, protocol), reached: true}
			switch {
			case c.Failure != nil || c.Error != nil:
				run.failed = []string{run.test}
				run.output = []byte(c.Name + "\n" + *cmp.Or(c.Failure, c.Error))
			case c.Skipped == nil:
				run.passed = 1
			}
			runs = append(runs, run)
		}
	}
	return runs, nil
}
