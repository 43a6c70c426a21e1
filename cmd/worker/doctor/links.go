package doctor

import "fmt"

// Link is a way to another machine, as its address says. Those within one machine are none.
type Link struct {
	Part      string // ledger, broker, providers, steps
	Setting   string // that names the address
	Host      string
	Encrypted bool
	Verified  bool   // the other side has to prove that it is who the address names
	Fix       string // what to write instead
}

// finding is what there is to say of a link: nil when it is encrypted and the other side verified.
func (l Link) finding() []Finding {
	switch {
	case !l.Encrypted:
		return []Finding{{"PO651", Warning, l.Part, fmt.Sprintf("%s leads to %s without TLS: logins and contents can be read and changed on the way", l.Setting, l.Host), l.Fix}}
	case !l.Verified:
		return []Finding{{"PO652", Warning, l.Part, fmt.Sprintf("%s leads to %s with TLS, but whoever answers there is believed", l.Setting, l.Host), l.Fix}}
	}
	return nil
}
