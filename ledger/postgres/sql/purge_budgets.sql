-- $1 retention, $2 at most
select paidonce.purge_budgets($1, $2) as n
