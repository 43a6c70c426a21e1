-- $1 table of children, $2 retention, $3 at most
select paidonce.purge_net($1, $2, $3) as n
