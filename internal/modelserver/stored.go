package modelserver

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// stored are the generations that can be asked for afterwards: evidence for a
// client that lost the answer. Anthropic has nothing of the kind.
type stored struct {
	mu   sync.Mutex
	all  []*generation
	byID map[string]*generation
}

func (s *stored) add(g *generation) {
	if !g.Store || g.Route == Messages {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.byID[g.id] = append(s.all, g), g
}

// getStored is GET /v1/responses/{id} and GET /v1/chat/completions/{id}.
func (s *Server) getStored(w http.ResponseWriter, r *http.Request) {
	s.stored.mu.Lock()
	g := s.stored.byID[r.PathValue("id")]
	s.stored.mu.Unlock()
	if g == nil || r.URL.Path != g.Route+"/"+g.id {
		notFound := refusal{openai: "invalid_request_error", message: "There is nothing with this id."}
		writeJSON(w, http.StatusNotFound, openaiError(notFound))
		return
	}
	writeJSON(w, http.StatusOK, g.body())
}

// listStored is GET /v1/chat/completions?metadata[k]=v: all on one page, oldest
// first.
func (s *Server) listStored(w http.ResponseWriter, r *http.Request) {
	page := []object{}
	s.stored.mu.Lock()
	all := slices.Clone(s.stored.all)
	s.stored.mu.Unlock()
	for _, g := range all {
		if g.Route == ChatCompletions && matches(g, r.URL.Query()) {
			page = append(page, g.body())
		}
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": page, "has_more": false})
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
