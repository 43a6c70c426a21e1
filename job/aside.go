package job

// aside runs f on a goroutine of its own, and waits for it. A goroutine keeps the stack that it once needed, and a verb of a ledger
// needs a deep one: made by the caller, every handler that waits for a model would hold it. A panic of f is the caller's.
// Work of the user stays where the user calls.
func aside(f func()) {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		f()
	}()
	if v := <-ended; v != nil {
		panic(v)
	}
}
