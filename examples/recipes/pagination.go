package recipes

import (
	"encoding/base64"
	"net/url"
	"strconv"

	"github.com/filohttp/filo"
)

const (
	defaultPageSize = 50
	maxPageSize     = 200
)

// Page is a client's request for a part of a list. A cursor names the last item that the client has. So pages neither repeat nor skip items when
// items are added between requests. Unlike with OFFSET, the database finds the beginning of a page with its index:
//
//	SELECT id, name FROM users WHERE id > $1 ORDER BY id LIMIT $2
type Page struct {
	After int64 // the id of the last item that the client has; 0 at the beginning
	Size  int
}

// PageOf reads the query parameters cursor and limit.
func PageOf(c *filo.Ctx) (Page, error) {
	page := Page{Size: defaultPageSize}
	if limit := c.Query("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > maxPageSize {
			return page, filo.Error(400, "limit must be a number from 1 to "+strconv.Itoa(maxPageSize))
		}
		page.Size = n
	}
	if cursor := c.Query("cursor"); cursor != "" {
		text, err := base64.RawURLEncoding.DecodeString(cursor)
		if err == nil {
			page.After, err = strconv.ParseInt(string(text), 10, 64)
		}
		if err != nil {
			return page, filo.Error(400, "cursor isn't one that this service has given out")
		}
	}
	return page, nil
}

// SetNext sends the client the URL of the next page in a Link header (RFC 8288). Query Size+1 items to find out whether there is a next page. last is
// the id of the last item on this page.
func (p Page) SetNext(c *filo.Ctx, last int64) {
	query := url.Values{
		"cursor": {base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, last, 10))},
		"limit":  {strconv.Itoa(p.Size)},
	}
	c.Response.Header.Add("Link", "<?"+query.Encode()+`>; rel="next"`)
}
