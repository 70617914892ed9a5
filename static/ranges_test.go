package static

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseRanges(t *testing.T) {
	const huge = "99999999999999999999"
	cases := []struct {
		why, value string
		size       int64
		want       []byteRange
		verdict    rangeVerdict
	}{
		{"both ends are in the range", "bytes=0-4", 10, []byteRange{{0, 5}}, rangesGood},
		{"the last byte", "bytes=9-9", 10, []byteRange{{9, 1}}, rangesGood},
		{"an end behind the file's is the file's", "bytes=5-10", 10, []byteRange{{5, 5}}, rangesGood},
		{"however far behind", "bytes=5-" + huge, 10, []byteRange{{5, 5}}, rangesGood},
		{"no end is the file's", "bytes=5-", 10, []byteRange{{5, 5}}, rangesGood},
		{"a suffix", "bytes=-3", 10, []byteRange{{7, 3}}, rangesGood},
		{"a suffix longer than the file is all of it", "bytes=-11", 10, []byteRange{{0, 10}}, rangesGood},
		{"however long", "bytes=-" + huge, 10, []byteRange{{0, 10}}, rangesGood},
		{"units have no case", "BYTES=0-0", 10, []byteRange{{0, 1}}, rangesGood},
		{"white space is around commas", "bytes=0-0 ,\t 2-2", 10, []byteRange{{0, 1}, {2, 1}}, rangesGood},
		{"elements of a list may be empty", "bytes=,0-0,,2-2,", 10, []byteRange{{0, 1}, {2, 1}}, rangesGood},
		{"the order stays", "bytes=5-6,0-1", 10, []byteRange{{5, 2}, {0, 2}}, rangesGood},
		{"ranges may overlap", "bytes=0-4,2-6", 10, []byteRange{{0, 5}, {2, 5}}, rangesGood},
		{"those outside are left out", "bytes=20-30,0-1,10-", 10, []byteRange{{0, 2}}, rangesGood},
		{"as much as the file has", "bytes=0-8,9-9", 10, []byteRange{{0, 9}, {9, 1}}, rangesGood},
		{"a huge file", "bytes=9223372036854775806-", 1<<63 - 1, []byteRange{{1<<63 - 2, 1}}, rangesGood},

		{"more than the file has", "bytes=0-8,8-9", 10, nil, rangesIgnored},
		{"more than can be counted", "bytes=0-,0-,0-", 1<<63 - 1, nil, rangesIgnored},
		{"too many", "bytes=" + strings.Repeat("0-0,", maxRanges) + "0-0", 1000, nil, rangesIgnored},
		{"too many outside", "bytes=" + strings.Repeat("5000-,", maxRanges+1), 1000, nil, rangesIgnored},
		{"none", "bytes=", 10, nil, rangesIgnored},
		{"none of an empty file", "bytes=0-", 0, nil, rangesIgnored},
		{"another unit", "pages=0-4", 10, nil, rangesIgnored},
		{"no unit", "0-4", 10, nil, rangesIgnored},
		{"no unit's name", "=0-4", 10, nil, rangesIgnored},
		{"the unit's name ends at the sign", "bytes =0-4", 10, nil, rangesIgnored},

		{"all outside", "bytes=10-,20-30", 10, nil, rangesUnsatisfiable},
		{"far outside", "bytes=" + huge + "-", 10, nil, rangesUnsatisfiable},
		{"a suffix of nothing", "bytes=-0", 10, nil, rangesUnsatisfiable},
		{"an end before the beginning", "bytes=5-4", 10, nil, rangesUnsatisfiable},
		{"and outside", "bytes=50-40", 10, nil, rangesUnsatisfiable},
		{"and beside good ones", "bytes=0-1,50-40", 10, nil, rangesUnsatisfiable},
		{"no number", "bytes=a-b", 10, nil, rangesUnsatisfiable},
		{"no range", "bytes=5", 10, nil, rangesUnsatisfiable},
		{"only a sign", "bytes=-", 10, nil, rangesUnsatisfiable},
		{"a negative number", "bytes=--5", 10, nil, rangesUnsatisfiable},
		{"a signed number", "bytes=0-+5", 10, nil, rangesUnsatisfiable},
		{"white space in a range", "bytes=0 -4", 10, nil, rangesUnsatisfiable},
		{"three numbers", "bytes=0-4-5", 10, nil, rangesUnsatisfiable},
		{"one of them malformed", "bytes=0-1,x", 10, nil, rangesUnsatisfiable},
		{"malformed behind too much", "bytes=0-,0-,x", 10, nil, rangesUnsatisfiable},
	}
	for _, tc := range cases {
		got, verdict := parseRanges(nil, []byte(tc.value), tc.size)
		if verdict != tc.verdict || verdict == rangesGood && !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q of %d: %v, verdict %d; want %v, %d", tc.why, tc.value, tc.size, got, verdict, tc.want, tc.verdict)
		}
	}
}

// Where a Range field is well-formed, without what net/http takes otherwise on purpose, both find the same ranges.
var plainRanges = regexp.MustCompile(`^bytes=((\d{1,18}-\d{0,18}|-0*[1-9]\d{0,16})(, ?|$))*$`)

var twoPositions = regexp.MustCompile(`(\d+)-(\d+)`)

// hasBackward reports whether a range ends before it begins, which net/http overlooks in one that is outside of the file.
func hasBackward(value string) bool {
	for _, match := range twoPositions.FindAllStringSubmatch(value, -1) {
		first, _ := strconv.ParseInt(match[1], 10, 64)
		last, _ := strconv.ParseInt(match[2], 10, 64)
		if last < first {
			return true
		}
	}
	return false
}

func FuzzParseRanges(f *testing.F) {
	for _, seed := range []string{"bytes=0-4", "bytes=-3,5-", "bytes=0-0, 2-2,9-", "bytes=20-", "bytes=5-4", "bytes=,", "x=1-2", "bytes=-0"} {
		f.Add(seed, int64(10))
	}
	f.Fuzz(func(t *testing.T, value string, size int64) {
		if size < 0 {
			return
		}
		ranges, verdict := parseRanges(nil, []byte(value), size)
		if verdict == rangesGood {
			sum := int64(0)
			for _, r := range ranges {
				if r.begin < 0 || r.length <= 0 || r.begin > size-r.length {
					t.Fatalf("%q of %d: %v isn't in the file", value, size, r)
				}
				if r.length > size-sum {
					t.Fatalf("%q of %d: %v are together larger than the file", value, size, ranges)
				}
				sum += r.length
			}
			if len(ranges) == 0 || len(ranges) > maxRanges {
				t.Fatalf("%q: %d ranges", value, len(ranges))
			}
		}
		if size < 1 || size > 1<<10 || !plainRanges.MatchString(value) || strings.Count(value, ",") >= maxRanges || hasBackward(value) {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", value)
		w := httptest.NewRecorder()
		http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader(strings.Repeat("x", int(size))))
		if want := [...]int{200, 206, 416}[verdict]; w.Code != want {
			t.Fatalf("%q of %d: ours is %d, net/http's %d", value, size, want, w.Code)
		}
		if len(ranges) == 1 && verdict == rangesGood {
			got, want := string(ranges[0].appendContentRange(nil, size)), w.Header().Get("Content-Range")
			if got != want {
				t.Fatalf("%q of %d: ours is %s, net/http's %s", value, size, got, want)
			}
		}
		if len(ranges) > 1 && verdict == rangesGood {
			for _, each := range ranges {
				if want := fmt.Sprintf("Content-Range: %s\r\n", each.appendContentRange(nil, size)); !strings.Contains(w.Body.String(), want) {
					t.Fatalf("%q of %d: net/http has no %q", value, size, want)
				}
			}
		}
	})
}

func BenchmarkParseRanges(b *testing.B) {
	var buffer [maxRanges]byteRange
	value := []byte("bytes=0-499,1000-1499,-500")
	b.ReportAllocs()
	for b.Loop() {
		if _, verdict := parseRanges(buffer[:0], value, 1<<20); verdict != rangesGood {
			b.Fatal(verdict)
		}
	}
}

// However long a Range is that is refused or ignored, it takes time in proportion to its length: otherwise these would take hours.
func TestLongRanges(t *testing.T) {
	const length = 1 << 22
	for name, value := range map[string]string{
		"empty ranges": "bytes=" + strings.Repeat(",", length),
		"white space":  "bytes=" + strings.Repeat(" ", length) + "0-1",
		"blank ranges": "bytes=" + strings.Repeat(" ,\t", length/3),
		"digits":       "bytes=" + strings.Repeat("9", length) + "-",
		"many ranges":  "bytes=" + strings.Repeat("0-0,", length/4),
		"another unit": strings.Repeat("x", length),
		"malformed":    "bytes=0-0," + strings.Repeat("-", length),
	} {
		if _, verdict := parseRanges(nil, []byte(value), 100); verdict == rangesGood && name != "white space" {
			t.Errorf("%s: the ranges are good", name)
		}
	}
}
