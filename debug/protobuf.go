package debug

import (
	"encoding/binary"
	"errors"
)

// The little of Protocol Buffers' wire format that profiles are made of: fields of varints, and of bytes.

const (
	wireVarint = 0
	wireBytes  = 2
)

var errProfile = errors.New("debug: malformed profile")

// protoField is a field of a message.
type protoField struct {
	number uint64
	wire   uint64
	value  uint64 // of a varint
	bytes  []byte // of anything with a length
	raw    []byte // with its tag
}

// eachField calls f for each field of a message.
func eachField(message []byte, f func(protoField) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errProfile
		}
		field := protoField{number: tag >> 3, wire: tag & 7}
		value, m := binary.Uvarint(message[n:])
		if m <= 0 {
			return errProfile
		}
		end := n + m
		switch field.wire {
		case wireVarint:
			field.value = value
		case wireBytes:
			if value > uint64(len(message)-end) {
				return errProfile
			}
			field.bytes = message[end : end+int(value)]
			end += int(value)
		default:
			return errProfile
		}
		field.raw, message = message[:end], message[end:]
		if err := f(field); err != nil {
			return err
		}
	}
	return nil
}

// appendNumbers appends those of a repeated field, which may be packed or not.
func (f *protoField) appendNumbers(list []uint64) ([]uint64, error) {
	if f.wire == wireVarint {
		return append(list, f.value), nil
	}
	for b := f.bytes; len(b) > 0; {
		value, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errProfile
		}
		list, b = append(list, value), b[n:]
	}
	return list, nil
}

func appendVarint(message []byte, number, value uint64) []byte {
	message = binary.AppendUvarint(message, number<<3|wireVarint)
	return binary.AppendUvarint(message, value)
}

func appendBytes(message []byte, number uint64, b []byte) []byte {
	message = binary.AppendUvarint(message, number<<3|wireBytes)
	message = binary.AppendUvarint(message, uint64(len(b)))
	return append(message, b...)
}

func appendPacked(message []byte, number uint64, list []uint64) []byte {
	var packed []byte
	for _, value := range list {
		packed = binary.AppendUvarint(packed, value)
	}
	return appendBytes(message, number, packed)
}
