-- $1 tenant, '' for any
select tenant, until from paidonce.floor where $1 = '' or tenant = $1
