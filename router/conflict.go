package router

import (
	"fmt"
	"strings"
)

// relation tells how the requests that one pattern matches relate to those that another pattern matches. It compares parts of
// patterns, too, such as two segments.
type relation uint8

const (
	equivalent   relation = 0
	moreGeneral  relation = 1 // the first pattern matches some requests that the second doesn't
	moreSpecific relation = 2 // the second pattern matches some requests that the first doesn't
	overlaps     relation = moreGeneral | moreSpecific
	disjoint     relation = 4 // no request matches both
)

// and returns the relation of two patterns from the relations of their parts. All parts must match, so if one part is disjoint, the
// patterns are, too. If one pattern matches more in any part, it matches more as a whole.
func (r relation) and(other relation) relation {
	if r == disjoint || other == disjoint {
		return disjoint
	}
	return r | other
}

// conflicts reports whether some request matches both patterns and neither pattern is more specific. Patterns with different hosts never
// conflict.
func (p *pattern) conflicts(other *pattern) bool {
	if p.host != other.host {
		return false
	}
	r := compareMethods(p.method, other.method).and(comparePaths(p, other))
	return r == equivalent || r == overlaps
}

// compareMethods compares the methods of two patterns: "" matches every method, and GET also matches HEAD.
func compareMethods(a, b string) relation {
	switch {
	case a == b:
		return equivalent
	case a == "", a == "GET" && b == "HEAD":
		return moreGeneral
	case b == "", a == "HEAD" && b == "GET":
		return moreSpecific
	}
	return disjoint
}

func comparePaths(p, other *pattern) relation {
	shared := min(len(p.segments), len(other.segments))
	r := equivalent
	for i := range shared {
		if r = r.and(compareSegments(p.segments[i], other.segments[i])); r == disjoint {
			return disjoint
		}
	}
	switch {
	case len(p.segments) == len(other.segments):
		return r
	case len(p.segments) == shared && p.last().kind == rest:
		return r.and(moreGeneral)
	case len(other.segments) == shared && other.last().kind == rest:
		return r.and(moreSpecific)
	}
	return disjoint
}

func compareSegments(a, b segment) relation {
	switch {
	case a.kind > b.kind:
		return compareDifferent(b, a, moreGeneral)
	case a.kind < b.kind:
		return compareDifferent(a, b, moreSpecific)
	case a.kind == literal && a.text != b.text:
		return disjoint
	case a.kind == single:
		return compareConstraints(a.constraint, b.constraint)
	}
	return equivalent
}

// compareDifferent compares segments of different kinds. It returns r if some text matches both, and disjoint otherwise.
func compareDifferent(specific, general segment, r relation) relation {
	switch {
	case general.kind == end, specific.kind == end && general.kind == single:
		return disjoint
	case specific.kind == literal && general.constraint != nil &&
		!general.constraint.match(decodeCanonical([]byte(specific.text))):
		return disjoint
	}
	return r
}

// compareConstraints assumes that different constraints overlap: it doesn't find out whether a value satisfies both.
func compareConstraints(a, b *constraint) relation {
	switch {
	case a == nil && b == nil, a != nil && b != nil && a.text == b.text:
		return equivalent
	case a == nil:
		return moreGeneral
	case b == nil:
		return moreSpecific
	}
	return overlaps
}

// describeConflict explains why two patterns conflict.
func describeConflict(p, other *pattern) string {
	paths, methods := comparePaths(p, other), compareMethods(p.method, other.method)
	switch {
	case paths|methods == equivalent:
		return "they match the same requests"
	case paths == overlaps && differentConstraints(p, other):
		return "they have different constraints at the same place, which a value may satisfy both"
	case paths == overlaps:
		return fmt.Sprintf("both match some paths, such as %q, but neither is more specific than the other", commonPath(p, other))
	case methods == moreGeneral:
		return "the first one matches more methods, but has the more specific path" + alone(other)
	}
	return "the first one matches fewer methods, but has the more general path" + alone(p)
}

// alone returns a hint for the pattern with the more general path: if it ends in a slash, "{$}" restricts it to that one path,
// without the paths below. Somebody who registers "GET /" next to a mounted handler usually wants this.
func alone(general *pattern) string {
	if !strings.HasSuffix(general.text, "/") {
		return ""
	}
	return fmt.Sprintf("; write %q for that path alone, without those below it", general.text+"{$}")
}

func differentConstraints(p, other *pattern) bool {
	for i := range min(len(p.segments), len(other.segments)) {
		if compareSegments(p.segments[i], other.segments[i]) == overlaps {
			return true
		}
	}
	return false
}

// commonPath returns a path that both patterns match, ignoring constraints.
func commonPath(p, other *pattern) string {
	var path strings.Builder
	long, short := p.segments, other.segments
	if len(long) < len(short) {
		long, short = short, long
	}
	for i, s := range long {
		if i < len(short) && short[i].kind < s.kind {
			s = short[i]
		}
		path.WriteByte('/')
		if s.kind == literal || s.kind == single {
			path.WriteString(s.text)
		}
	}
	return path.String()
}

// index narrows down the patterns that a new pattern must be compared with: a pattern with a different literal at the same position can't
// conflict.
type index struct {
	byPlace map[place][]*pattern // lists each pattern once for each of its segments
	all     []*pattern
}

// place identifies the n-th segment of a pattern.
type place struct {
	n    int
	text string // a literal, or else one of the following constants, which no literal can equal
}

const (
	placeOfEnd    = "/"
	placeOfSingle = ""
	placeOfRest   = "/..."
)

func placeOf(n int, s segment) place {
	switch s.kind {
	case literal:
		return place{n, s.text}
	case end:
		return place{n, placeOfEnd}
	case single:
		return place{n, placeOfSingle}
	}
	return place{n, placeOfRest}
}

func (x *index) add(p *pattern) {
	if x.byPlace == nil {
		x.byPlace = make(map[place][]*pattern)
	}
	x.all = append(x.all, p)
	for n, s := range p.segments {
		at := placeOf(n, s)
		x.byPlace[at] = append(x.byPlace[at], p)
	}
}

// conflict returns a pattern that p conflicts with, nil if there is none.
func (x *index) conflict(p *pattern) *pattern {
	lists, fewest := [][]*pattern{x.all}, len(x.all)
	var rests [][]*pattern // patterns whose rest wildcard is the n-th segment or an earlier segment
	sum := 0
	for n, s := range p.segments {
		if list := x.byPlace[place{n, placeOfRest}]; len(list) > 0 {
			rests = append(rests, list)
			sum += len(list)
		}
		if s.kind != literal && s.kind != end {
			continue
		}
		same, wild := x.byPlace[placeOf(n, s)], x.byPlace[place{n, placeOfSingle}]
		if size := len(same) + len(wild) + sum; size < fewest {
			lists, fewest = append([][]*pattern{same, wild}, rests...), size
		}
	}
	for _, list := range lists {
		for _, other := range list {
			if p.conflicts(other) {
				return other
			}
		}
	}
	return nil
}
