-- ?1 tenant, '' for any
select tenant, until from paidonce_floor where (?1 = '' or tenant = ?1) and until > 0
