package config

import (
	"os"

	"github.com/paidonce/paidonce/prices"
)

// PriceTable reads the prices that calls cost: the built-in table, with the configured file over it.
// Its error has a line for everything that is wrong with the file.
func (c *Config) PriceTable() (*prices.Table, error) {
	if c.Prices == "" {
		return prices.Builtin(), nil
	}
	f, err := os.Open(c.Prices)
	if err != nil {
		return nil, Fault{Code: "PO039", Path: "prices", Value: c.Prices, Source: c.Source("prices"), Text: "the file cannot be read: " + cause(err)}
	}
	defer f.Close()
	own, err := prices.Read(c.Prices, f)
	if err != nil {
		return nil, err
	}
	return prices.Builtin().With(own), nil
}
