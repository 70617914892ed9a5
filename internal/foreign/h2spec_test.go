package main

import (
	"fmt"
	"strings"
	"testing"
)

// readH2spec names each case by its section and its number, and finds the failed ones. The report isn't valid XML, because h2spec doesn't
// escape the text that it quotes.
func TestReadH2spec(t *testing.T) {
	runs, err := readH2spec([]byte(`<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="3.5. HTTP/2 Connection Preface" package="http2/3.5" id="3.5" tests="3" skipped="1" failures="0" errors="1">
    <testcase package="http2/3.5" classname="Sends client connection preface" time="0.0009"></testcase>
    <testcase package="http2/3.5" classname="Sends invalid connection preface" time="2.0012">
      <error>Connection closed
read 127.0.0.1:1->127.0.0.1:2: <nil> & more</error>
    </testcase>
    <testcase package="http2/3.5" classname="Sends nothing" time="0.0001">
      <skipped></skipped>
    </testcase>
  </testsuite>
  <testsuite name="4.2. Maximum Table Size" package="hpack/4.2" id="4.2" tests="1" skipped="0" failures="1" errors="0">
    <testcase package="hpack/4.2" classname="Sends a size update" time="0.0012">
      <failure>Expect: GOAWAY</failure>
    </testcase>
  </testsuite>
</testsuites>`), "h2c")
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for _, run := range runs {
		got += fmt.Sprintf("%s passed %d failed %d\n", run.test, run.passed, len(run.failed))
	}
	want := "http2/3.5/1/h2c passed 1 failed 0\nhttp2/3.5/2/h2c passed 0 failed 1\nhttp2/3.5/3/h2c passed 0 failed 0\n" +
		"hpack/4.2/1/h2c passed 0 failed 1\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(runs) > 1 && !strings.Contains(string(runs[1].output), "invalid connection preface\nConnection closed") {
		t.Errorf("the second's output is %q", runs[1].output)
	}
	if _, err := readH2spec([]byte("<testsuites><testsuite>"), "h2c"); err == nil {
		t.Error("half a report is accepted")
	}
}
