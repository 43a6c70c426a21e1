-- $1 day, $2 and $3 tenants and ids of jobs
select paidonce.purge_move($1, $2, $3) as n
