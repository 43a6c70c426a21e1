package config

import (
	"errors"

	"github.com/paidonce/paidonce/ledger/sealed"
)

// checkKeys finds keys that could not be used. The fault shows no part of them.
func (l *loader) checkKeys() {
	e := l.config.Ledger.Encryption
	if e.Keys.text != "" && e.File != "" {
		l.at("PO040", "ledger.encryption.file", "ledger.encryption.keys ("+l.config.Source("ledger.encryption.keys").String()+") has keys too; take one of them out")
	}
	if _, err := sealed.ParseKeys(e.Keys.text); err != nil {
		l.at("PO040", "ledger.encryption.keys", err.Error())
	}
}

// LedgerKeys reads the keys of the ledger's bodies.
func (c *Config) LedgerKeys() (*sealed.Keys, error) {
	e := c.Ledger.Encryption
	if e.File == "" {
		return sealed.ParseKeys(e.Keys.text)
	}
	fault := func(err error) error {
		return Fault{Code: "PO040", Path: "ledger.encryption.file", Value: e.File, Source: c.Source("ledger.encryption.file"), Text: err.Error()}
	}
	text, err := readFile(e.File)
	if err != nil {
		return nil, fault(err)
	}
	k, err := sealed.ParseKeys(string(text))
	switch {
	case err != nil:
		return nil, fault(err)
	case len(k.IDs()) == 0:
		return nil, fault(errors.New("it holds no key; bodies would be stored as they are"))
	}
	return k, nil
}
