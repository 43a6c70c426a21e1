package postgres

// Listing is the statement that lists the jobs of a filter.
var Listing = listing

// Migrations are the steps of the schema.
var Migrations = migrations
