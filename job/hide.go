package job

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// hiddenText stands where a credential was.
const hiddenText = "(hidden)"

// shortest is the least length of a credential, in bytes: shorter ones would be found in innocent words.
const shortest = 8

// credentials are the secrets that a request carries, the longest first. Providers and gateways repeat them in
// refusals ("Incorrect API key provided: …"), whose texts end up in rows, logs and errors.
func credentials(req *http.Request) []string {
	var all []string
	for name, values := range req.Header {
		if !sensitive(name) {
			continue
		}
		for _, v := range values {
			_, word, _ := strings.Cut(v, " ") // behind a scheme, such as Bearer
			all = append(all, v, strings.TrimSpace(word))
			if plain, err := base64.StdEncoding.DecodeString(word); err == nil { // Basic
				_, password, _ := strings.Cut(string(plain), ":")
				all = append(all, password)
			}
		}
	}
	if req.URL.RawQuery != "" {
		for name, values := range req.URL.Query() {
			if strings.EqualFold(name, "key") || sensitive(strings.ReplaceAll(name, "_", "-")) {
				all = append(all, values...)
			}
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < shortest })
	for _, s := range slices.Clone(all) {
		all = append(all, encoded(s)...)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// encoded are the forms in which a secret stands in a URL and in a JSON string, which some write with an escaped slash.
func encoded(s string) []string {
	quoted, err := json.Marshal(s)
	if err != nil || strings.Contains(s, " ") { // a scheme and what stands behind it, which is a secret of its own
		return nil
	}
	inner := string(quoted[1 : len(quoted)-1])
	return []string{url.QueryEscape(s), url.PathEscape(s), inner, strings.ReplaceAll(inner, "/", `\/`)}
}

// sensitive reports whether a header or parameter of that name is likely to hold a secret.
func sensitive(name string) bool {
	low := strings.ToLower(name)
	return slices.ContainsFunc(secret, func(s string) bool { return strings.Contains(low, s) }) || strings.Contains(low, "token")
}

func hide(text []byte, credentials []string) []byte {
	for _, s := range credentials {
		text = bytes.ReplaceAll(text, []byte(s), []byte(hiddenText))
	}
	return text
}

// hide takes the request's credentials out of what the other side wrote.
func (x *exchange) hide(text []byte) []byte { return hide(text, x.credentials) }

func (x *exchange) hideText(s string) string { return string(x.hide([]byte(s))) }

// readError is the flavour's, without credentials.
func (x *exchange) readError(h http.Header, body []byte) apiError {
	e := x.flavour.readError(h, body)
	e.text, e.requestID = x.hideText(e.text), x.hideText(e.requestID)
	return e
}

// hideHeader is hide for the header of an answer. Its body stays as it is: it is what was paid for.
func (x *exchange) hideHeader(h http.Header) http.Header {
	clean := make(http.Header, len(h))
	for name, values := range h {
		for _, v := range values {
			clean[name] = append(clean[name], x.hideText(v))
		}
	}
	return clean
}

// hideRefusal reads a refusal, up to maxRefusal, and puts what it says in its place without credentials.
func hideRefusal(resp *http.Response, credentials []string) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	text = hide(text, credentials)
	rest := io.MultiReader(bytes.NewReader(text), failedRead{err})
	resp.ContentLength, resp.Body = -1, struct {
		io.Reader
		io.Closer
	}{rest, resp.Body}
	resp.Header.Del("Content-Length")
}

// failedRead ends a body as it ended; nil: well.
type failedRead struct{ err error }

func (f failedRead) Read([]byte) (int, error) { return 0, cmp.Or(f.err, io.EOF) }
