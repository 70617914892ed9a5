package session

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/filohttp/filo"
)

// saveTries is how often saving is tried if other requests change the session at the same time.
const saveTries = 20

var errBusy = errors.New("session: too many requests changed the session at once")

// saveStore applies the request's changes to the session as it is now in the store.
func (s *Session) saveStore(c *filo.Ctx, now time.Time) error {
	m := s.manager
	if s.another {
		if err := s.end(c, now); err != nil {
			return err
		}
		s.id, s.record = "", Record{}
	}
	if s.renewed && s.id != "" {
		return s.saveRenewed(c, now)
	}
	if s.id == "" {
		if superseded, err := s.superseded(c, now); err != nil || superseded {
			return err
		}
		s.id = rand.Text()
	}
	s.content.Renewed = s.content.Renewed || s.renewed
	for range saveTries {
		record, err := s.encodeRecord(s.record.Version, now)
		if err != nil {
			return err
		}
		saved, err := m.Store.Save(c, storedID(s.id), record)
		if err != nil {
			return fmt.Errorf("saving a session: %w", err)
		}
		if saved {
			s.record.Version++
			return s.setCookieValue(c, s.id, record.Expires, now)
		}
		gone, err := s.merge(c, now)
		if err != nil || gone {
			return err
		}
		if !s.altered() && !s.stale { // the other request has renewed the expiry
			return s.setCookieValue(c, s.id, time.Unix(s.content.Expires, 0), now)
		}
	}
	return errBusy
}

// superseded reports whether the client sent the old id of a renewed session that still lives. The cookie of a new session would then replace
// the cookie that another answer, such as that to a login, brings to the client. So the new session is saved only if this request renews it.
// If the client sent the id of a session that lives, but couldn't be loaded, the changes are lost, and superseded returns an error.
func (s *Session) superseded(c *filo.Ctx, now time.Time) (bool, error) {
	if s.moved == "" || s.renewed {
		return false, nil
	}
	record, err := s.manager.load(c, s.moved)
	if err != nil {
		return false, err
	}
	alive, err := s.manager.alive(c, record, now)
	if alive && s.unknown != nil {
		err = unknown(c, s.unknown)
	}
	return alive, err
}

// encodeRecord returns the content in the form that a store keeps.
func (s *Session) encodeRecord(version uint64, now time.Time) (Record, error) {
	data, expires, err := s.encode(now)
	return Record{Data: data, Version: version, Renewed: s.content.Renewed, Expires: expires}, err
}

// movedTime is how long requests that came with a session's old id can still end the session. It is also how long a mark is stored in place
// of an ended session, so that requests that loaded the session earlier notice its end.
const movedTime = 5 * time.Minute

// saveRenewed saves the session under a new id. The client gets the new id only after the old record points to the new one. The old record is
// replaced only if it hasn't changed since the request loaded it; otherwise saveRenewed merges the changes and tries again. So the new
// session has the changes of other requests, and a session that they have ended stays ended.
func (s *Session) saveRenewed(c *filo.Ctx, now time.Time) (err error) {
	store, id, version := s.manager.Store, rand.Text(), uint64(0)
	defer func() {
		if s.id != id {
			err = errors.Join(err, store.Delete(c, storedID(id)))
		}
	}()
	for range saveTries {
		s.content.Renewed = true
		record, err := s.encodeRecord(version, now)
		if err != nil {
			return err
		}
		saved, err := store.Save(c, storedID(id), record)
		if err == nil && !saved {
			err = errBusy
		}
		if err != nil {
			return fmt.Errorf("saving a session: %w", err)
		}
		version++
		moved, err := s.manager.leave(c, storedID(s.id), s.record.Version, contents{Next: storedID(id)}, now)
		if err != nil {
			return err
		}
		if !moved {
			gone, err := s.merge(c, now)
			if err == nil && gone {
				// Two requests that renew the session, such as two clicks to log in, get a new session each. The new session has no values
				// that the other request has added since, because the other request may come from another client that has the old id.
				moved, err = s.manager.alive(c, s.record, now)
			}
			if err != nil || gone && !moved {
				return err
			}
		}
		if moved {
			s.id, s.record.Version = id, version
			return s.setCookieValue(c, s.id, record.Expires, now)
		}
	}
	return errBusy
}

// alive reports whether a record holds a session, or points to a renewed session that hasn't ended since.
func (m *manager) alive(c *filo.Ctx, record Record, now time.Time) (bool, error) {
	for range saveTries {
		content := contentOf(record)
		if content.Next == "" {
			return content.Expires > now.Unix(), nil
		}
		var err error
		if record, err = m.load(c, content.Next); err != nil {
			return false, err
		}
	}
	return false, nil
}

// leave replaces a stored session, if its version is the given one, with content that isn't a session: a mark, or a pointer to the renewed
// session. It reports false if the stored session has another version.
func (m *manager) leave(c *filo.Ctx, stored string, version uint64, content contents, now time.Time) (bool, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return false, err
	}
	left, err := m.Store.Save(c, stored, Record{Data: data, Version: version, Expires: now.Add(movedTime)})
	if err != nil {
		return false, fmt.Errorf("ending a session: %w", err)
	}
	return left, nil
}

// end destroys the session whose id the client sent, even if other requests have changed or renewed it since.
func (s *Session) end(c *filo.Ctx, now time.Time) error {
	m, stored, version := s.manager, s.moved, s.record.Version
	if version > 0 {
		stored = storedID(s.id)
	}
	if stored == "" {
		return nil
	}
	s.moved = ""
	for range saveTries {
		if version > 0 {
			ended, err := m.leave(c, stored, version, contents{}, now)
			if err != nil {
				return err
			}
			if ended {
				return nil
			}
		}
		record, err := m.load(c, stored)
		if err != nil || record.Version == 0 {
			return err
		}
		version = record.Version
		if next := contentOf(record).Next; next != "" {
			stored, version = next, 0
		}
	}
	return errBusy
}

// load returns a stored record, for a request that can't go on without it: Record.Unknown counts as an error.
func (m *manager) load(c *filo.Ctx, stored string) (Record, error) {
	record, err := m.Store.Load(c, stored)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("loading a session: %w", err)
	case record.Unknown != nil:
		return Record{}, unknown(c, record.Unknown)
	}
	return record, nil
}

// unknown returns the error of a request that needs the record that the store couldn't load because of err. The client may try again soon.
func unknown(c *filo.Ctx, err error) error {
	c.Response.Header.Set("Retry-After", "1")
	return fmt.Errorf("loading a session: %w", err)
}

// contentOf returns the content of a record, and empty content if the record holds none.
func contentOf(record Record) (content contents) {
	if record.Version == 0 || json.Unmarshal(record.Data, &content) != nil {
		return contents{}
	}
	return content
}

// merge applies the request's changes to the content that another request has saved. It reports true if the other request has destroyed the
// session: then there is nothing to save. If the store has dropped a visitor's session to make room, the session is saved again with all
// values that the request has loaded or set. (A destroyed session leaves a mark in the store, a dropped one doesn't.)
func (s *Session) merge(c *filo.Ctx, now time.Time) (gone bool, err error) {
	mine := s.content.Values
	record, err := s.manager.load(c, storedID(s.id))
	if err != nil {
		return false, err
	}
	visitor := !contentOf(s.record).Renewed
	s.record = record
	if record.Version == 0 && visitor {
		return false, nil
	}
	s.stale = false
	if !s.read(now) {
		return true, nil
	}
	theirs := s.content.Values
	if s.cleared || theirs == nil {
		theirs = make(map[string]string)
	}
	for key := range s.changed {
		if value, ok := mine[key]; ok {
			theirs[key] = value
		} else {
			delete(theirs, key)
		}
	}
	s.content.Values = maps.Clone(theirs)
	return false, nil
}
