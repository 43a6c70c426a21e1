//go:build !linux

package sqlite

// networkFS cannot tell on this system; the documentation says what not to do.
func networkFS(string) (string, error) { return "", nil }
