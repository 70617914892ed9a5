package byterange

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

func TestParse(t *testing.T) {
	const huge = "99999999999999999999"
	cases := []struct {
		why, value string
		size       int64
		want       []Range
		verdict    Verdict
	}{
		{"both ends are in the range", "bytes=0-4", 10, []Range{{0, 5}}, Good},
		{"the last byte", "bytes=9-9", 10, []Range{{9, 1}}, Good},
		{"an end behind the file's is the file's", "bytes=5-10", 10, []Range{{5, 5}}, Good},
		{"however far behind", "bytes=5-" + huge, 10, []Range{{5, 5}}, Good},
		{"no end is the file's", "bytes=5-", 10, []Range{{5, 5}}, Good},
		{"a suffix", "bytes=-3", 10, []Range{{7, 3}}, Good},
		{"a suffix longer than the file is all of it", "bytes=-11", 10, []Range{{0, 10}}, Good},
		{"however long", "bytes=-" + huge, 10, []Range{{0, 10}}, Good},
		{"units have no case", "BYTES=0-0", 10, []Range{{0, 1}}, Good},
		{"white space is around commas", "bytes=0-0 ,\t 2-2", 10, []Range{{0, 1}, {2, 1}}, Good},
		{"elements of a list may be empty", "bytes=,0-0,,2-2,", 10, []Range{{0, 1}, {2, 1}}, Good},
		{"the order stays", "bytes=5-6,0-1", 10, []Range{{5, 2}, {0, 2}}, Good},
		{"ranges may overlap", "bytes=0-4,2-6", 10, []Range{{0, 5}, {2, 5}}, Good},
		{"those outside are left out", "bytes=20-30,0-1,10-", 10, []Range{{0, 2}}, Good},
		{"as much as the file has", "bytes=0-8,9-9", 10, []Range{{0, 9}, {9, 1}}, Good},
		{"a huge file", "bytes=9223372036854775806-", 1<<63 - 1, []Range{{1<<63 - 2, 1}}, Good},

		{"more than the file has", "bytes=0-8,8-9", 10, nil, Ignored},
		{"more than can be counted", "bytes=0-,0-,0-", 1<<63 - 1, nil, Ignored},
		{"too many", "bytes=" + strings.Repeat("0-0,", Max) + "0-0", 1000, nil, Ignored},
		{"too many outside", "bytes=" + strings.Repeat("5000-,", Max+1), 1000, nil, Ignored},
		{"none", "bytes=", 10, nil, Ignored},
		{"none of an empty file", "bytes=0-", 0, nil, Ignored},
		{"another unit", "pages=0-4", 10, nil, Ignored},
		{"no unit", "0-4", 10, nil, Ignored},
		{"no unit's name", "=0-4", 10, nil, Ignored},
		{"the unit's name ends at the sign", "bytes =0-4", 10, nil, Ignored},

		{"all outside", "bytes=10-,20-30", 10, nil, Unsatisfiable},
		{"far outside", "bytes=" + huge + "-", 10, nil, Unsatisfiable},
		{"a suffix of nothing", "bytes=-0", 10, nil, Unsatisfiable},
		{"an end before the beginning", "bytes=5-4", 10, nil, Unsatisfiable},
		{"and outside", "bytes=50-40", 10, nil, Unsatisfiable},
		{"and beside good ones", "bytes=0-1,50-40", 10, nil, Unsatisfiable},
		{"no number", "bytes=a-b", 10, nil, Unsatisfiable},
		{"no range", "bytes=5", 10, nil, Unsatisfiable},
		{"only a sign", "bytes=-", 10, nil, Unsatisfiable},
		{"a negative number", "bytes=--5", 10, nil, Unsatisfiable},
		{"a signed number", "bytes=0-+5", 10, nil, Unsatisfiable},
		{"white space in a range", "bytes=0 -4", 10, nil, Unsatisfiable},
		{"three numbers", "bytes=0-4-5", 10, nil, Unsatisfiable},
		{"one of them malformed", "bytes=0-1,x", 10, nil, Unsatisfiable},
		{"malformed behind too much", "bytes=0-,0-,x", 10, nil, Unsatisfiable},
	}
	for _, tc := range cases {
		got, verdict := Parse(nil, []byte(tc.value), tc.size)
		if verdict != tc.verdict || verdict == Good && !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q of %d: %v, verdict %d; want %v, %d", tc.why, tc.value, tc.size, got, verdict, tc.want, tc.verdict)
		}
	}
}

// plainRanges matches well-formed Range fields in which filo and net/http find the same ranges. It leaves out the forms that filo reads
// differently on purpose.
var plainRanges = regexp.MustCompile(`^bytes=((\d{1,18}-\d{0,18}|-0*[1-9]\d{0,16})(, ?|$))*$`)

var twoPositions = regexp.MustCompile(`(\d+)-(\d+)`)

// hasBackward reports whether a range ends before it begins. net/http accepts such a range if it is outside the file.
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

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"bytes=0-4", "bytes=-3,5-", "bytes=0-0, 2-2,9-", "bytes=20-", "bytes=5-4", "bytes=,", "x=1-2", "bytes=-0"} {
		f.Add(seed, int64(10))
	}
	f.Fuzz(func(t *testing.T, value string, size int64) {
		if size < 0 {
			return
		}
		ranges, verdict := Parse(nil, []byte(value), size)
		if verdict == Good {
			sum := int64(0)
			for _, r := range ranges {
				if r.Begin < 0 || r.Length <= 0 || r.Begin > size-r.Length {
					t.Fatalf("%q of %d: %v isn't in the file", value, size, r)
				}
				if r.Length > size-sum {
					t.Fatalf("%q of %d: %v are together larger than the file", value, size, ranges)
				}
				sum += r.Length
			}
			if len(ranges) == 0 || len(ranges) > Max {
				t.Fatalf("%q: %d ranges", value, len(ranges))
			}
		}
		if size < 1 || size > 1<<10 || !plainRanges.MatchString(value) || strings.Count(value, ",") >= Max || hasBackward(value) {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", value)
		w := httptest.NewRecorder()
		http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader(strings.Repeat("x", int(size))))
		if want := [...]int{200, 206, 416}[verdict]; w.Code != want {
			t.Fatalf("%q of %d: ours is %d, net/http's %d", value, size, want, w.Code)
		}
		if len(ranges) == 1 && verdict == Good {
			got, want := string(ranges[0].AppendContentRange(nil, size)), w.Header().Get("Content-Range")
			if got != want {
				t.Fatalf("%q of %d: ours is %s, net/http's %s", value, size, got, want)
			}
		}
		if len(ranges) > 1 && verdict == Good {
			for _, each := range ranges {
				if want := fmt.Sprintf("Content-Range: %s\r\n", each.AppendContentRange(nil, size)); !strings.Contains(w.Body.String(), want) {
					t.Fatalf("%q of %d: net/http has no %q", value, size, want)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var buffer [Max]Range
	value := []byte("bytes=0-499,1000-1499,-500")
	b.ReportAllocs()
	for b.Loop() {
		if _, verdict := Parse(buffer[:0], value, 1<<20); verdict != Good {
			b.Fatal(verdict)
		}
	}
}

// The time to refuse or ignore a Range field is proportional to its length. If it were quadratic, these fields would take hours.
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
		if _, verdict := Parse(nil, []byte(value), 100); verdict == Good && name != "white space" {
			t.Errorf("%s: the ranges are good", name)
		}
	}
}
