-- $1 retention, $2 at most
select paidonce.purge_counts($1, $2) as n
