package debug

import (
	"cmp"
	_ "embed"
	"html/template"
	"slices"
	"strconv"
	"time"

	"github.com/filohttp/filo"
)

var (
	//go:embed clients.html
	clientsText     string
	clientsTemplate = template.Must(template.New("clients").Parse(clientsText))
)

// maxListed is the number of clients in each table of the page. The JSON has all clients that the server reports.
const maxListed = 20

// clientsPage is what serveClients shows.
type clientsPage struct {
	Time    time.Time     `json:"time"`
	Clients []clientEntry `json:"clients"`
}

type clientEntry struct {
	Client        string `json:"client"`
	Conns         int    `json:"connections"`
	ConnsEnded    uint64 `json:"connections_ended"`
	Requests      uint64 `json:"requests"`
	BytesReceived uint64 `json:"bytes_received"`
	BytesSent     uint64 `json:"bytes_sent"`
	Refusals      uint64 `json:"refusals"`
}

// clientTable lists the clients with the highest figures of one kind.
type clientTable struct {
	Title   string
	Clients []clientEntry
}

// Tables returns the tables of the page.
func (p clientsPage) Tables() (tables []clientTable) {
	for _, each := range [...]struct {
		title  string
		figure func(c clientEntry) uint64
	}{
		{"Most open connections", func(c clientEntry) uint64 { return uint64(c.Conns) }},
		{"Most requests", func(c clientEntry) uint64 { return c.Requests }},
		{"Most bytes", func(c clientEntry) uint64 { return c.BytesReceived + c.BytesSent }},
		{"Most refusals", func(c clientEntry) uint64 { return c.Refusals }},
	} {
		listed := slices.DeleteFunc(slices.Clone(p.Clients), func(c clientEntry) bool { return each.figure(c) == 0 })
		slices.SortStableFunc(listed, func(a, b clientEntry) int { return cmp.Compare(each.figure(b), each.figure(a)) })
		tables = append(tables, clientTable{each.title, listed[:min(len(listed), maxListed)]})
	}
	return tables
}

// size renders a number of bytes in a readable unit.
func size(n uint64) string {
	value, units := float64(n), []string{"B", "KB", "MB", "GB", "TB"}
	for ; value >= 1000 && len(units) > 1; units = units[1:] {
		value /= 1000
	}
	if units[0] == "B" || value >= 100 {
		return strconv.FormatFloat(value, 'f', 0, 64) + " " + units[0]
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[0]
}

// Received returns BytesReceived in a readable unit.
func (c clientEntry) Received() string { return size(c.BytesReceived) }

// Sent returns BytesSent in a readable unit.
func (c clientEntry) Sent() string { return size(c.BytesSent) }

func newClientsPage(clients []filo.Client) clientsPage {
	p := clientsPage{Time: time.Now().UTC(), Clients: make([]clientEntry, 0, len(clients))}
	for _, each := range clients {
		client := ""
		if each.Address.IsValid() {
			client = each.Address.String()
			if each.Address.Is6() {
				client += "/64"
			}
		}
		p.Clients = append(p.Clients, clientEntry{
			client, each.Conns, each.ConnsEnded, each.Requests, each.BytesReceived, each.BytesSent, each.Refusals,
		})
	}
	return p
}

// serveClients answers with the clients that have the most connections, requests, bytes or refusals.
func (h *handler) serveClients(c *filo.Ctx) error {
	return answerPage(c, clientsTemplate, newClientsPage(cmp.Or(h.server, c.Server()).Clients()))
}
