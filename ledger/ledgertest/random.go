package ledgertest

var randomCases = []testCase{}
