"""A store on more than one host: shipping is begun, a new host takes over, followers read along."""
