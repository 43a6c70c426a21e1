package rabbitmq

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// defaultPassword is public, and hiding it would garble texts that name the
// user of the same name.
const defaultPassword = "guest"

// redactor hides passwords in whatever is logged or returned. All texts that come
// from outside (driver, broker, callbacks) pass it.
type redactor struct {
	mu      sync.Mutex
	secrets []string
}

// add hides a password from now on, in each of the forms a URL can give it.
func (r *redactor) add(password string) {
	if password == "" || password == defaultPassword {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, encoded, _ := strings.Cut(url.UserPassword("", password).String(), ":")
	for _, form := range []string{password, encoded, url.QueryEscape(password), url.PathEscape(password)} {
		if !slices.Contains(r.secrets, form) {
			r.secrets = append(r.secrets, form)
		}
	}
}

// text returns s without passwords.
func (r *redactor) text(s string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}

// error returns err, or if its text holds a password an error with another text
// that still answers errors.Is.
func (r *redactor) error(err error) error {
	if err == nil {
		return nil
	}
	if text := r.text(err.Error()); text != err.Error() {
		return &redacted{text, err}
	}
	return err
}

// redacted does not unwrap: whoever walked the chain would print the password.
type redacted struct {
	text string
	err  error
}

func (e *redacted) Error() string        { return e.text }
func (e *redacted) Is(target error) bool { return errors.Is(e.err, target) }
