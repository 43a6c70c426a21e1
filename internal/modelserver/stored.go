package modelserver

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
)

// stored are the objects that can be asked for afterwards: evidence for a client
// that lost the answer. Anthropic has nothing of the kind.
type stored struct {
	mu      sync.Mutex
	entries []*entry
}

type entry struct {
	*generation
	body object
	lag  int // look-ups that do not find it; negative: all
}

// seen reports whether this look-up finds it. The caller holds mu.
func (e *entry) seen() bool {
	if e.lag > 0 {
		e.lag--
		return false
	}
	return e.lag == 0
}

// begin stores what may be stored of g and returns what to do when the model has
// finished. Only a background response is found before that.
func (s *stored) begin(g *generation, f Fault) (finish func()) {
	if !g.Store || g.Route == Messages {
		return func() {}
	}
	e := &entry{generation: g, lag: f.Lag}
	put := func(body object) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.body == nil {
			s.entries = append(s.entries, e)
		}
		e.body = body
	}
	if g.Background {
		put(g.response("in_progress"))
		return func() { put(g.response(cmp.Or(f.Ends, "completed"))) }
	}
	return func() { put(g.body()) }
}

// find returns the objects of a route that satisfy ok, oldest first.
func (s *stored) find(route string, ok func(*generation) bool) []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []object{}
	for _, e := range s.entries {
		if e.Route == route && ok(e.generation) && e.seen() {
			found = append(found, e.body)
		}
	}
	return found
}

// getStored is GET of a route with an id.
func (s *Server) getStored(route string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found := s.stored.find(route, func(g *generation) bool { return g.id == r.PathValue("id") })
		if len(found) == 0 {
			notFound(w, OpenAI)
			return
		}
		writeJSON(w, http.StatusOK, found[0])
	}
}

// listStored is GET /v1/chat/completions?metadata[k]=v: all on one page.
func (s *Server) listStored(w http.ResponseWriter, r *http.Request) {
	found := s.stored.find(ChatCompletions, func(g *generation) bool { return matches(g, r.URL.Query()) })
	writeJSON(w, http.StatusOK, object{"object": "list", "data": found, "has_more": false})
}

// matches reports whether the metadata has all that the query names.
func matches(g *generation, query map[string][]string) bool {
	for name, values := range query {
		if key, ok := strings.CutPrefix(name, "metadata["); ok && g.Metadata[strings.TrimSuffix(key, "]")] != values[0] {
			return false
		}
	}
	return true
}
