package sqlite

// Listing is the statement that lists the jobs of a filter.
var Listing = listing
