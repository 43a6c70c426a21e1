-- $1 day, $2 retention, $3 at most, $4 in a batch
select tenants, jobs from paidonce.purge_needed($1, $2, $3, $4)
