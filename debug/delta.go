package debug

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"time"
)

// The numbers of the fields that matter here, of profile.proto (github.com/google/pprof/blob/main/proto/profile.proto).
const (
	profileSample, profileLocation, profileFunction, profileString = 2, 4, 5, 6
	profileDuration                                                = 10
	sampleLocation, sampleValue, sampleLabel                       = 1, 2, 3
	labelKey, labelString, labelUnit                               = 1, 2, 4
	locationID, locationAddress, locationLine                      = 1, 3, 4
	lineFunction                                                   = 1
	functionID, functionName, functionSystemName, functionFile     = 1, 2, 3, 4
)

// profile is one in the format of pprof, taken apart as far as two of them have to be compared.
type profile struct {
	samples   []sample
	locations map[uint64]protoField
	functions map[uint64]protoField
	strings   []string
	rest      []byte // all but samples and the duration
	// maxLocation and maxFunction are the highest ids.
	maxLocation, maxFunction uint64
}

type sample struct {
	locations, values []uint64
	labels            [][]byte
}

// subtract returns what has been added to a profile of this process since it was taken before: the samples of after less those
// of before. Both are as runtime/pprof writes them, and so is the result, for which the time in between is noted.
//
// The two number their functions, places in code and texts each in its own way. So samples are matched by what the numbers stand
// for. Those that are only in before, as the stacks of goroutines that have ended, become negative ones.
func subtract(before, after []byte, duration time.Duration) ([]byte, error) {
	b, err := decodeProfile(before)
	if err != nil {
		return nil, err
	}
	a, err := decodeProfile(after)
	if err != nil {
		return nil, err
	}
	known := make(map[string]*sample, len(a.samples))
	for i := range a.samples {
		key, err := a.key(&a.samples[i])
		if err != nil {
			return nil, err
		}
		known[key] = &a.samples[i]
	}
	var gone []sample
	for _, s := range b.samples {
		key, err := b.key(&s)
		if err != nil {
			return nil, err
		}
		if found := known[key]; found != nil && len(found.values) == len(s.values) {
			for i := range s.values {
				found.values[i] -= s.values[i] // two's complement, as protobuf has negative ones
			}
			continue
		}
		for i := range s.values {
			s.values[i] = -s.values[i]
		}
		gone = append(gone, s)
	}
	return a.encode(b, gone, duration)
}

func decodeProfile(compressed []byte) (*profile, error) {
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	message, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	p := &profile{locations: make(map[uint64]protoField), functions: make(map[uint64]protoField)}
	err = eachField(message, func(f protoField) (err error) {
		switch f.number {
		case profileSample:
			s, err := decodeSample(f.bytes)
			p.samples = append(p.samples, s)
			return err // which isn't to be kept as it is
		case profileDuration:
			return nil
		case profileLocation:
			p.maxLocation, err = note(p.locations, f, p.maxLocation)
		case profileFunction:
			p.maxFunction, err = note(p.functions, f, p.maxFunction)
		case profileString:
			p.strings = append(p.strings, string(f.bytes))
		}
		p.rest = append(p.rest, f.raw...)
		return err
	})
	return p, err
}

// note puts a location or function, the id of which is the first field of both, into its map, and returns the highest id.
func note(m map[uint64]protoField, f protoField, highest uint64) (uint64, error) {
	id := uint64(0)
	err := eachField(f.bytes, func(inner protoField) error {
		if inner.number == locationID {
			id = inner.value
		}
		return nil
	})
	m[id] = f
	return max(highest, id), err
}

func decodeSample(message []byte) (s sample, err error) {
	err = eachField(message, func(f protoField) (err error) {
		switch f.number {
		case sampleLocation:
			s.locations, err = f.appendNumbers(s.locations)
		case sampleValue:
			s.values, err = f.appendNumbers(s.values)
		case sampleLabel:
			s.labels = append(s.labels, f.bytes)
		}
		return err
	})
	return s, err
}

// key returns what is equal for the samples of two profiles if they are of the same stack with the same labels.
func (p *profile) key(s *sample) (string, error) {
	var key []byte
	for _, id := range s.locations {
		err := eachField(p.locations[id].bytes, func(f protoField) error {
			switch f.number {
			case locationAddress:
				key = appendVarint(key, locationAddress, f.value)
			case locationLine:
				key = append(key, locationLine)
				return p.appendLine(&key, f.bytes)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	labels := make([]string, len(s.labels))
	for i, label := range s.labels {
		var text []byte
		err := p.appendTexts(&text, label, labelKey, labelString, labelUnit)
		if err != nil {
			return "", err
		}
		labels[i] = string(text)
	}
	slices.Sort(labels) // their order means nothing
	for _, label := range labels {
		key = appendBytes(key, sampleLabel, []byte(label))
	}
	return string(key), nil
}

// appendLine appends what a line of a location stands for.
func (p *profile) appendLine(key *[]byte, line []byte) error {
	return eachField(line, func(f protoField) error {
		if f.number == lineFunction {
			return p.appendTexts(key, p.functions[f.value].bytes, functionName, functionSystemName, functionFile)
		}
		*key = appendVarint(*key, f.number, f.value)
		return nil
	})
}

// appendTexts appends the fields of a message, and for those that are numbers of texts the texts. Ids are left out.
func (p *profile) appendTexts(key *[]byte, message []byte, texts ...uint64) error {
	return eachField(message, func(f protoField) error {
		switch {
		case slices.Contains(texts, f.number):
			if f.value >= uint64(len(p.strings)) {
				return errProfile
			}
			*key = appendBytes(*key, f.number, []byte(p.strings[f.value]))
		case f.number == functionID && len(texts) == 3 && texts[0] == functionName:
		default:
			*key = appendVarint(*key, f.number, f.value)
		}
		return nil
	})
}

// encode returns the profile with those samples of another one that gone has.
func (p *profile) encode(other *profile, gone []sample, duration time.Duration) ([]byte, error) {
	message := p.rest
	if len(gone) > 0 {
		var err error
		if message, err = p.adopt(message, other, gone); err != nil {
			return nil, err
		}
	}
	for _, s := range slices.Concat(p.samples, gone) {
		if !slices.ContainsFunc(s.values, func(value uint64) bool { return value != 0 }) {
			continue
		}
		inner := appendPacked(nil, sampleLocation, s.locations)
		inner = appendPacked(inner, sampleValue, s.values)
		for _, label := range s.labels {
			inner = appendBytes(inner, sampleLabel, label)
		}
		message = appendBytes(message, profileSample, inner)
	}
	message = appendVarint(message, profileDuration, uint64(duration))

	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write(message); err != nil {
		return nil, err
	}
	err := writer.Close()
	return compressed.Bytes(), err
}

// adopt appends what the samples of another profile need of it, and makes the samples refer to that: ids go on from where those of
// p end, and so do the numbers of texts. What is mapped to memory has the same ids in all profiles of a process.
func (p *profile) adopt(message []byte, other *profile, samples []sample) (_ []byte, err error) {
	first := uint64(len(p.strings))
	for _, text := range other.strings {
		message = appendBytes(message, profileString, []byte(text))
	}
	texts := offsets{functionID: p.maxFunction, functionName: first, functionSystemName: first, functionFile: first}
	for _, function := range other.functions {
		inner, err := texts.add(function.bytes)
		if err != nil {
			return nil, err
		}
		message = appendBytes(message, profileFunction, inner)
	}
	for _, location := range other.locations {
		inner, err := p.adoptLocation(location.bytes)
		if err != nil {
			return nil, err
		}
		message = appendBytes(message, profileLocation, inner)
	}
	for _, s := range samples {
		for i := range s.locations {
			s.locations[i] += p.maxLocation
		}
		for i, label := range s.labels {
			if s.labels[i], err = (offsets{labelKey: first, labelString: first, labelUnit: first}).add(label); err != nil {
				return nil, err
			}
		}
	}
	return message, nil
}

// adoptLocation returns a location of another profile with ids that go on from where those of p end.
func (p *profile) adoptLocation(location []byte) (adopted []byte, err error) {
	err = eachField(location, func(f protoField) error {
		switch f.number {
		case locationID:
			adopted = appendVarint(adopted, locationID, f.value+p.maxLocation)
		case locationLine:
			line, err := offsets{lineFunction: p.maxFunction}.add(f.bytes)
			adopted = appendBytes(adopted, locationLine, line)
			return err
		default:
			adopted = append(adopted, f.raw...)
		}
		return nil
	})
	return adopted, err
}

// offsets says by the numbers of fields what is added to their values.
type offsets map[uint64]uint64

func (o offsets) add(message []byte) (shifted []byte, err error) {
	err = eachField(message, func(f protoField) error {
		if offset := o[f.number]; offset > 0 && f.wire == wireVarint {
			shifted = appendVarint(shifted, f.number, f.value+offset)
		} else {
			shifted = append(shifted, f.raw...)
		}
		return nil
	})
	return shifted, err
}
