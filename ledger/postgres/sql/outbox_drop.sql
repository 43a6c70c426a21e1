-- $1 tenants, $2 jobs, $3 results, $4 places
select paidonce.outbox_drop($1, $2, $3, $4) as n
