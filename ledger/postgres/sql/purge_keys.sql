-- $1 retention, $2 at most
select paidonce.purge_keys($1, $2) as n
