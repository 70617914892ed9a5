package otel

import "github.com/filohttp/filo"

// carrier gives propagators access to header fields.
type carrier filo.Header

func (h *carrier) header() *filo.Header { return (*filo.Header)(h) }

// Get implements propagation.TextMapCarrier.
func (h *carrier) Get(name string) string { return h.header().Get(name) }

// Set implements propagation.TextMapCarrier.
func (h *carrier) Set(name, value string) { h.header().Set(name, value) }

// Keys implements propagation.TextMapCarrier.
func (h *carrier) Keys() []string {
	keys := make([]string, 0, h.header().Len())
	for name := range h.header().All() {
		keys = append(keys, string(name))
	}
	return keys
}

// Values implements propagation.ValuesGetter: baggage may be in several fields (W3C Baggage, section 3.1).
func (h *carrier) Values(name string) (values []string) {
	for value := range h.header().Values(name) {
		values = append(values, string(value))
	}
	return values
}
